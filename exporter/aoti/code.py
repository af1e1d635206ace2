"""Compiled code without weights, which can be packaged with any weights of the same layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from exporter.aoti.assemble import WrittenFile, assemble_package
from exporter.aoti.constants import Constant, find_mismatch, read_constants_table
from exporter.errors import CompileFailed, WeightsDoNotFit
from exporter.manifest import TensorEntry


@dataclass(frozen=True, kw_only=True, eq=False)
class CompiledCode:
    """AOTInductor's output for one program: the library, its sources and metadata, by file name."""

    files: Mapping[str, bytes]
    values: Mapping[str, Tensor]  # constants of the model's code, which are not weights

    @cached_property
    def table(self) -> tuple[Constant, ...]:
        """The constants table, read from the source of the wrapper."""
        sources = [data for name, data in self.files.items() if name.endswith("wrapper.cpp")]
        if len(sources) != 1:
            raise CompileFailed(f"the compiler wrote {len(sources)} wrappers instead of one")
        return read_constants_table(sources[0].decode())

    def assemble(self, weights: Mapping[str, Tensor], path: Path) -> WrittenFile:
        """Write the package of this code with `weights`, which are named as in the traced module.

        Raises:
            WeightsDoNotFit: a weight is missing, or differs in shape, dtype or strides from the code's.
        """
        return assemble_package(self.files, self.table, {**weights, **self.values}, path)


@dataclass(frozen=True, kw_only=True, eq=False)
class ProgramCode:
    """A program's code, and the facts on the program that later stages need."""

    fingerprint: str  # of the traced graph
    code: CompiledCode
    state: Mapping[str, str]  # name of every weight of the module -> its layout
    outputs: tuple[TensorEntry, ...]
    op_libraries: tuple[str, ...]

    def assemble(self, weights: Mapping[str, Tensor], path: Path) -> WrittenFile:
        """Write the package of this code with `weights`, named and laid out exactly as when it was compiled.

        Raises:
            WeightsDoNotFit: a weight is missing, new, or of another shape, dtype or strides.
        """
        if mismatch := self.find_mismatch(weights):
            raise WeightsDoNotFit(f"the weights do not fit the compiled code: {mismatch}")
        return self.code.assemble(weights, path)

    def find_mismatch(self, weights: Mapping[str, Tensor]) -> str:
        """Describe how `weights` differ from those the code was compiled for; return "" if they fit."""
        return _difference(self.state, describe_layouts(weights)) or find_mismatch(
            self.code.table, {**weights, **self.code.values}
        )


def describe_layouts(weights: Mapping[str, Tensor]) -> dict[str, str]:
    """Describe each weight's dtype, shape and strides."""
    return {name: _layout(tensor) for name, tensor in weights.items()}


def _layout(tensor: Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype} {list(tensor.shape)}, strides {list(tensor.stride())}"


def _difference(compiled_for: Mapping[str, str], weights: Mapping[str, str]) -> str:
    for name in sorted(compiled_for.keys() | weights.keys()):
        if name not in weights:
            return f"there is no {name}"
        if name not in compiled_for:
            return f"{name} is new"
        if weights[name] != compiled_for[name]:
            return f"{name} is {weights[name]}, not {compiled_for[name]}"
    return ""

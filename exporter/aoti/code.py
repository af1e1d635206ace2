"""Compiled code without weights: what any weights of the same shapes can be packaged with."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torch import Tensor

from exporter.aoti.assemble import WrittenFile, assemble
from exporter.aoti.constants import Constant, read_table
from exporter.errors import CompileFailed


@dataclass(frozen=True, kw_only=True, eq=False)
class Code:
    """What AOTInductor made of one program: the library, its sources and metadata, by file name."""

    files: Mapping[str, bytes]
    values: Mapping[str, Tensor]  # constants that are no weights: they come from the model's code

    @cached_property
    def table(self) -> tuple[Constant, ...]:
        sources = [data for name, data in self.files.items() if name.endswith("wrapper.cpp")]
        if len(sources) != 1:
            raise CompileFailed(f"the compiler wrote {len(sources)} wrappers where one belongs")
        return read_table(sources[0].decode())

    def assemble(self, weights: Mapping[str, Tensor], path: Path) -> WrittenFile:
        """The package of this code with `weights`, by the names of the traced module.

        Raises:
            WeightsDoNotFit: a weight is missing, or not of the shape, dtype and strides of the code's.
        """
        return assemble(self.files, self.table, {**weights, **self.values}, path)

"""A tower with its compiled packages, ready to be called: eager in this process, packages in a fresh one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram

from exporter.lowering.lower_tower import Fp32Reference
from exporter.manifest import TensorEntry
from exporter.options.layout import PackageKind
from exporter.spec import Pass
from exporter.towers.lookup import LookUp
from exporter.towers.tower import Tower, settle_ties
from exporter.verify.numerics import choose_tolerance
from exporter.verify.reload import Link
from exporter.verify.runner import PackageRunner
from exporter.verify.runner_process import CALL_LIMIT_S, RunnerProcess


@dataclass(frozen=True, kw_only=True, eq=False)
class RunnableTower:
    """A tower, the chain of packages compiled from it, and what either needs to be called."""

    tower: Tower
    chain: Sequence[Link]  # all packages, in calling order
    op_libraries: tuple[str, ...]  # modules to import before a package is loaded
    scratch: Path  # inputs and outputs of the packages travel as files below it
    device: torch.device
    passes: Sequence[Pass] = ()  # that the programs were edited by
    parts: Sequence[Tower] = ()  # that the packages were made of, where there are several
    outputs: Sequence[TensorEntry] = ()  # as the manifest describes them; none: not known
    programs: Sequence[ExportedProgram] = ()  # that the packages were compiled from; none if code was reused
    lookup: LookUp | None = None  # in front of the programs, where none of them looks up
    fp32: Fp32Reference | None = None  # the tower as trained, where precision is given up
    call_limit_s: float = CALL_LIMIT_S  # for one call of the packages, and for loading them
    ahead: RunnerProcess | None = None  # to run the packages in, if it was started ahead

    @property
    def title(self) -> str:
        """The tower's name in messages."""
        return self.tower.title

    @cached_property
    def tolerance(self) -> float:
        """The allowed difference of package and eager, as a fraction of an output's scale."""
        return choose_tolerance(self.passes, self.tower.config.options)

    @property
    def looks_up(self) -> bool:
        """Return whether a package looks up, be it one that no program was traced for."""
        return self.lookup is None or self.chain[0].kind is PackageKind.TORCHSCRIPT

    def first_inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs of the first program for a call of the tower, on the tower's device."""
        on_device = self.on_device(inputs)
        return on_device if self.lookup is None else self.lookup(on_device)

    def run_eager(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs of the eager tower, on the CPU; those of packages are compared with them."""
        with torch.no_grad():
            outputs: dict[str, Tensor] = self.tower.module(self.on_device(inputs))
        return {name: value.cpu() for name, value in outputs.items()}

    def run_parts(self, inputs: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
        """Yield the outputs of each eager part in turn, on the CPU."""
        tensors = self.on_device(inputs) if self.looks_up else self.first_inputs(inputs)
        for part in self.parts:
            with torch.no_grad():
                tensors = part.module(tensors)
            yield {name: value.cpu() for name, value in tensors.items()}

    def settle_ties(
        self, inputs: Mapping[str, Tensor], expected: Mapping[str, Tensor], actual: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """Return the outputs of eager with ties among ids decided as the packages did, on the CPU."""
        with torch.no_grad():
            on_device = self.on_device(inputs)
            return settle_ties(self.tower.module, on_device, expected, actual, error=self.tolerance)

    def make_runner(self) -> PackageRunner:
        """Return the packages in a process of their own, which starts once the runner is entered."""
        return PackageRunner(
            self.chain,
            op_libraries=self.op_libraries,
            scratch=self.scratch,
            device=str(self.device),
            tf32=self.tower.config.options.tf32,
            threads=torch.get_num_threads(),
            lookup=None if self.looks_up else self.lookup,
            limit_s=self.call_limit_s,
            ahead=self.ahead,
        )

    def on_device(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the inputs on the tower's device."""
        return {name: value.to(self.device) for name, value in inputs.items()}

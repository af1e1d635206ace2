"""The request to package a tower, and the search for the smallest graph where that fails."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch
from torch import Tensor

from exporter.attempt.attempt import DIAGNOSTICS
from exporter.code_cache.fingerprint import request_key
from exporter.families.loading import family_modules
from exporter.lowering.lower_tower import Fp32Reference
from exporter.minify.on_failure import minify_on_failure, minify_on_trace_failure
from exporter.packages.parts import Part, TracedPart
from exporter.packages.scripted_part import ScriptedPart, WrittenPart
from exporter.readback.tower_weights import TowerWeights
from exporter.spec import Pass, Target
from exporter.towers.lookup import LookUp
from exporter.towers.tower import Tower
from exporter.trace.op_libraries import all_graphs, find_known_libraries, find_op_libraries
from exporter.verify.cases import Cases
from exporter.verify.gate import OnChecked
from exporter.verify.runner_process import CALL_LIMIT_S, RunnerProcess

_OTHER_SIZES = "batch_7"  # a case whose sizes are not those of the trace


@dataclass(frozen=True, kw_only=True, eq=False)
class PackagingRequest:
    """A tower with its weights, the parts it is packaged in, and the inputs to trace and verify it with.

    Cases hold inputs of the tower; `inputs` are those of the first part, behind `lookup` where there is one.
    """

    tower: Tower
    parts: tuple[Part, ...]
    inputs: dict[str, Tensor]
    make_cases: Callable[[], Cases]
    device: torch.device
    folder: Path
    passes: tuple[Pass, ...] = ()
    target: Target = "cpu"
    lookup: LookUp | None = None  # in front of the packages, where none of them looks up
    scripted: ScriptedPart | None = None  # written as a package as well: it does what `lookup` does
    weights: TowerWeights | None = None  # None: the tower was not filled from a checkpoint
    fp32: Fp32Reference | None = None  # the tower as trained, where precision is given up
    runner: RunnerProcess | None = None  # to run packages in, if it was started ahead
    call_limit_s: float = CALL_LIMIT_S  # of one call of a package, or of loading it
    on_traced: Callable[[Sequence[TracedPart]], None] = lambda traced: None
    on_checked: OnChecked = lambda trial: None  # receives each case once the packages were checked on it

    @cached_property
    def cache_key(self) -> str:
        """The key of the request in the code cache, equal for requests whose packages have the same code."""
        return request_key([part.tower for part in self.parts], self.passes, self.device, self.target)

    def write_scripted(self) -> WrittenPart | None:
        """Write the scripted part, if there is one."""
        return None if self.scripted is None else self.scripted.write(self.folder)

    def inputs_of(self, case: str) -> dict[str, Tensor]:
        """Return the first part's inputs in a verification case; for any other name those of the trace."""
        cases = self.make_cases().must_agree
        found = next((batch.inputs for batch in cases if batch.name == case), None)
        if found and self.lookup is not None:
            found = self.lookup(found)
        return {name: each.to(self.device) for name, each in (found or self.inputs).items()}


def minify_build_failure(
    request: PackagingRequest, traced: Sequence[TracedPart]
) -> AbstractContextManager[None]:
    """Search for the smallest graph that fails so, where compiling or verifying fails inside."""
    programs = [part.program for part in traced]
    find_op_libraries(programs)  # refuses, before anything is compiled, what no server could import
    libraries = find_known_libraries(all_graphs(programs))
    return minify_on_failure(programs, request.inputs_of, request.folder / DIAGNOSTICS, libraries=libraries)


def minify_tracing_failure(request: PackagingRequest) -> AbstractContextManager[None]:
    """Search for the fewest operators that cannot be traced, where tracing fails inside."""
    return minify_on_trace_failure(
        [part.tower for part in request.parts],
        request.inputs,
        partial(request.inputs_of, _OTHER_SIZES),
        request.folder / DIAGNOSTICS,
        libraries=likely_op_libraries(request.tower),
    )


def likely_op_libraries(tower: Tower) -> tuple[str, ...]:
    """Return the modules to import for a tower's operators, as far as they are known before a trace."""
    declared = family_modules(tower.config.pipeline.model.family) if tower.is_declared else ()
    return declared or ("fbgemm_gpu",)

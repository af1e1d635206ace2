"""What a tower is to be packaged of, and how what fails on the way is made small."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from exporter.attempt.attempt import EVIDENCE
from exporter.data.batch import NamedBatch
from exporter.families.loading import family_module
from exporter.lowering.lower_tower import Fp32Reference
from exporter.minify.on_failure import minify_on_failure, minify_on_trace_failure
from exporter.packages.parts import Part, TracedPart
from exporter.spec import Pass, Target
from exporter.towers.lookup import LookUp
from exporter.towers.tower import Tower
from exporter.trace.op_libraries import all_graphs, find_known_libraries, find_op_libraries
from exporter.verify.runner import CALL_LIMIT_S, RunnerProcess

_OTHER_SIZES = "batch_7"  # a case whose sizes are not those of the trace


@dataclass(frozen=True, kw_only=True, eq=False)
class PackageOrder:
    """A tower with its weights, the parts it is packaged in, and what to trace and to try it with.

    Batches are the tower's; `inputs` are those of the first part, behind a `lookup` where there is one.
    """

    tower: Tower
    parts: tuple[Part, ...]
    inputs: dict[str, Tensor]
    agreeing: Callable[[], Iterable[NamedBatch]]
    contradicting: Callable[[], Iterable[NamedBatch]]
    device: torch.device
    folder: Path
    passes: tuple[Pass, ...] = ()
    target: Target = "cpu"
    lookup: LookUp | None = None  # in front of the packages, where none of them looks up
    fp32: Fp32Reference | None = None  # the tower as trained, where precision is given up
    runner: RunnerProcess | None = None  # what packages are to run in, if it was started ahead
    call_limit_s: float = CALL_LIMIT_S  # of one call of a package, or of loading it
    on_traced: Callable[[Sequence[TracedPart]], None] = lambda traced: None

    def inputs_of(self, case: str) -> dict[str, Tensor]:
        """The first part's inputs in a verification case; of any other name those of the trace."""
        found = next((batch.inputs for batch in self.agreeing() if batch.name == case), None)
        if found and self.lookup is not None:
            found = self.lookup(found)
        return {name: each.to(self.device) for name, each in (found or self.inputs).items()}


def failures_made_small(order: PackageOrder, traced: Sequence[TracedPart]) -> AbstractContextManager[None]:
    """What fails inside, once there are programs, is cut to the smallest graph that fails so."""
    programs = [part.program for part in traced]
    find_op_libraries(programs)  # refuses, before anything is compiled, what no server could import
    libraries = find_known_libraries(all_graphs(programs))
    return minify_on_failure(programs, order.inputs_of, order.folder / EVIDENCE, libraries=libraries)


def untraceable_made_small(order: PackageOrder) -> AbstractContextManager[None]:
    """What cannot be traced is cut to the fewest operators that cannot."""
    return minify_on_trace_failure(
        [part.tower for part in order.parts],
        order.inputs,
        partial(order.inputs_of, _OTHER_SIZES),
        order.folder / EVIDENCE,
        libraries=untraced_libraries(order.tower),
    )


def untraced_libraries(tower: Tower) -> tuple[str, ...]:
    """The modules that register what operators a tower may call, as far as one can know before a trace."""
    return (family_module(tower.config.pipeline.model.family),) if tower.is_declared else ("fbgemm_gpu",)

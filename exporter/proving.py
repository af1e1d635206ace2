"""A tower's programs compiled and held against eager; what fails there is made small, for its failure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor

from exporter.aoti.op_libraries import op_libraries
from exporter.aoti.shape_rules import give_shape_rules
from exporter.attempt import EVIDENCE
from exporter.data.batch import NamedBatch, Rows, contradicting_batches, trace_inputs, verification_batches
from exporter.data.sweep import sweep
from exporter.manifest import InferredOp, VerificationReport
from exporter.parts import CompiledPart, TracedPart, compile_parts
from exporter.spec import Pass, Target
from exporter.stages import Stage, StageClock
from exporter.towers.tower import Tower
from exporter.verify.gate import Gate
from exporter.verify.shrink import shrunk

_TRIED = 4  # batches that operators without a shape rule are tried on
_SEED, _DRAWN = 20, 4  # of the sizes that are drawn: the same in every export, so that a failure comes again


@dataclass(frozen=True, kw_only=True)
class Proven:
    """Packages that passed the gate, and the gate's report on them."""

    compiled: tuple[CompiledPart, ...]
    gate: Gate
    report: VerificationReport
    op_libraries: tuple[str, ...]  # to import before a package is loaded


def infer_shape_rules(tower: Tower, rows: Rows, *, allowed: bool) -> tuple[InferredOp, ...]:
    """Try the tower's operators on real rows at several sizes, and infer the shape rules that lack.

    Raises:
        ShapeRuleMissing: naming the operator, because rules may not be inferred or none fits.
    """
    device = _device_of(tower)
    batches = islice(verification_batches(rows, tower.plan), _TRIED)
    on_device = ({name: each.to(device) for name, each in batch.inputs.items()} for batch in batches)
    return give_shape_rules(tower.module, on_device, allowed=allowed)


def prove(
    tower: Tower,
    traced: Sequence[TracedPart],
    rows: Rows,
    folder: Path,
    clock: StageClock,
    *,
    passes: Sequence[Pass],
    target: Target,
) -> Proven:
    """Compile the parts for `target` and verify them; packages go below `folder`, and evidence of a failure.

    Raises:
        CompileFailed: a part does not compile.
        VerificationFailed: a package does not compute what eager computes.
    """
    device = _device_of(tower)

    def inputs_of(case: str) -> dict[str, Tensor]:
        found = (batch.inputs for batch in _agreeing(tower, rows) if batch.name == case)
        inputs = next(found, None) or trace_inputs(rows, tower.plan)
        return {name: each.to(device) for name, each in inputs.items()}

    programs = [part.program for part in traced]
    libraries = op_libraries(programs)
    with shrunk(programs, inputs_of, folder / EVIDENCE, libraries=libraries):
        with clock.stage(Stage.COMPILE) as progress:
            compiled = compile_parts(traced, folder, progress, target=target)
        with clock.stage(Stage.VERIFY) as progress:
            gate = Gate(
                tower,
                [part.link for part in compiled],
                op_libraries=libraries,
                scratch=folder,
                device=device,
                passes=passes,
                programs=programs,
            )
            report = gate.verify(_agreeing(tower, rows), contradicting_batches(rows, tower.plan), progress)
    return Proven(compiled=compiled, gate=gate, report=report, op_libraries=libraries)


def _agreeing(tower: Tower, rows: Rows) -> Iterator[NamedBatch]:
    """The cases at which package and eager must agree: chosen ones, and ones that are drawn."""
    yield from verification_batches(rows, tower.plan)
    yield from sweep(rows, tower.plan, seed=_SEED, count=_DRAWN)


def _device_of(tower: Tower) -> torch.device:
    return next((each.device for each in tower.module.parameters()), torch.device("cpu"))

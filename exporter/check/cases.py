"""One tower's packages and programs, tried on batches: a finding per case, and no case ends the others."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from torch import Tensor
from torch.export import ExportedProgram

from exporter.check.report import Finding, Subject
from exporter.data.batch import NamedBatch
from exporter.dims.plan import DimPlan
from exporter.dims.torch_dims import check_program, input_sizes
from exporter.errors import DimPlanViolated, ExportError, PackageCrashed
from exporter.manifest import CaseReport
from exporter.verify.cases import Cases
from exporter.verify.gate import Gate
from exporter.verify.nodes import first_broken
from exporter.verify.runner import PackageRunner

_LONGEST = 500  # characters of what a case raised

log = logging.getLogger(__name__)


def findings_of(
    gate: Gate,
    plan: DimPlan,
    programs: Sequence[tuple[ExportedProgram, DimPlan]],
    cases: Cases,
) -> Iterator[Finding]:
    """Everything there is to find out, as it is found: each program with the plan it must keep to."""
    for program, planned in programs:
        yield from of_plan(program, planned)
    for batch in cases.must_agree:
        try:
            yield of_nodes([program for program, _ in programs], batch, plan, gate.entering(batch))
        except Exception as error:  # noqa: BLE001  a program that raises at a size is what was found
            yield _raised(Subject.NODES, batch, error)
    try:
        gate.learn_scales(cases.must_agree)
    except Exception:  # each case is then held against its own scale, and tells what eager raises
        log.exception("scales_unknown")
    yield from _of_packages(gate, plan, cases)


def of_plan(program: ExportedProgram, plan: DimPlan) -> Iterator[Finding]:
    """The program's constraints are the planned dims, neither narrower nor wider, and nothing is fixed."""
    try:
        symbols = check_program(program, plan)
    except DimPlanViolated as violated:
        yield Finding(subject=Subject.PLAN, case=violated.where, passed=False, detail=violated.message)
        return
    for name in symbols:
        dim = plan.dim(name)
        bounds = f"{dim.low} or more" if dim.high is None else f"{dim.low} to {dim.high:,}"
        yield Finding(subject=Subject.PLAN, case=name, passed=True, detail=f"{bounds}, as planned")


def of_nodes(
    programs: Sequence[ExportedProgram], batch: NamedBatch, plan: DimPlan, entering: dict[str, Tensor]
) -> Finding:
    """The programs run node by node on what of a batch enters the first; a node that breaks its promise."""
    broken = first_broken(programs, entering)
    nodes = sum(len(program.graph.nodes) for program in programs)
    return Finding(
        subject=Subject.NODES,
        case=batch.name,
        passed=broken is None,
        sizes=input_sizes(plan, batch.inputs),
        detail=str(broken) if broken else f"{nodes:,} nodes",
    )


def _of_packages(gate: Gate, plan: DimPlan, cases: Cases) -> Iterator[Finding]:
    """The packages, in a process of their own that is begun again should one crash it."""
    with ExitStack() as running:
        runner: PackageRunner | None = None
        for subject, batch, tried in _trials(gate, plan, cases):
            try:
                runner = runner or running.enter_context(gate.runner())
            except Exception as error:  # noqa: BLE001  what does not load fails alike in every other case
                yield _raised(subject, batch, error)
                return
            try:
                yield tried(runner)
            except PackageCrashed as crash:
                runner = None
                yield _raised(subject, batch, crash)
            except Exception as error:  # noqa: BLE001  whatever a case raises, the others are told
                yield _raised(subject, batch, error)


def _raised(subject: Subject, batch: NamedBatch, error: Exception) -> Finding:
    told = error.message if isinstance(error, ExportError) else f"{type(error).__name__}: {error}"
    return Finding(subject=subject, case=batch.name, passed=False, detail=told[:_LONGEST])


Trial = tuple[Subject, NamedBatch, Callable[[PackageRunner], Finding]]


def _trials(gate: Gate, plan: DimPlan, cases: Cases) -> Iterable[Trial]:
    def agrees(batch: NamedBatch, runner: PackageRunner) -> Finding:
        return _of_report(Subject.AGREES, gate.agrees(runner, batch), gate.tolerance)

    def steady(batch: NamedBatch, runner: PackageRunner) -> Finding:
        moved, sizes = gate.moved(runner, batch), input_sizes(plan, batch.inputs)
        return Finding(subject=Subject.STEADY, case=batch.name, passed=not moved, sizes=sizes, detail=moved)

    def refuses(batch: NamedBatch, runner: PackageRunner) -> Finding:
        return _of_report(Subject.REFUSES, gate.refuses(runner, batch), gate.tolerance)

    for batch in cases.must_agree:
        yield Subject.AGREES, batch, partial(agrees, batch)
        yield Subject.STEADY, batch, partial(steady, batch)
    for batch in cases.must_be_refused:
        yield Subject.REFUSES, batch, partial(refuses, batch)


def _of_report(subject: Subject, report: CaseReport, tolerance: float) -> Finding:
    allowed = tolerance * (report.scale or 0.0)
    difference = report.largest_difference
    return Finding(
        subject=subject,
        case=report.name,
        passed=report.passed,
        sizes=report.sizes,
        of_allowed=None if difference is None or not allowed else difference / allowed,
        detail=report.detail if report.passed else _told(report),
    )


def _told(report: CaseReport) -> str:
    if report.largest_difference is None:
        return report.detail
    at = f"{report.output} differs by {report.largest_difference:.3g} at scale {report.scale:.3g}"
    return f"{at}; {report.detail}" if report.detail else at

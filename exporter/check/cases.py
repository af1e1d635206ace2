"""The checks of `slipway check` on one tower: a finding per case, and no failing case ends the others."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from torch.export import ExportedProgram

from exporter.check.report import Finding
from exporter.data.rows import NamedBatch
from exporter.dims.plan import DimPlan
from exporter.dims.torch_dims import check_program
from exporter.errors import DimPlanViolated, ExportError
from exporter.verify.cases import Cases
from exporter.verify.check_list import CHECKS
from exporter.verify.checks.check import Check, Trial
from exporter.verify.runnable_tower import RunnableTower
from exporter.verify.runner import PackageRunner
from exporter.verify.trials import Trials

PLAN = "plan"  # the program's sizes are exactly the planned dims; tracing holds an export to that
SHOWN = tuple(check for check in CHECKS if not check.gate_only)
TITLES = {PLAN: "sizes of the program are the plan's", **{check.name: check.title for check in SHOWN}}
_LONGEST = 500  # characters of an error that a case raised

log = logging.getLogger(__name__)


def find_everything(runnable: RunnableTower, plans: Sequence[DimPlan], cases: Cases) -> Iterator[Finding]:
    """Run all checks on all cases; yield every finding as it comes.

    Each program of the tower is also compared with its plan in `plans`.
    """
    for program, plan in zip(runnable.programs, plans, strict=True):
        yield from check_plan(program, plan)
    checks = [check(runnable) for check in SHOWN]
    for check in checks:
        if not check.needs_packages:
            for batch in check.select(cases):
                trial = Trial(runnable=runnable, batch=batch)
                if not trial.find_eager_failure():
                    yield _run(check, trial)
    trials = Trials(
        runnable,
        cases,
        [each for each in checks if each.needs_packages],
        lambda check, cases: check.select(cases),
    )
    try:
        trials.prepare()
    except Exception:  # each case is then compared at its own scale, and reports what eager raises
        log.exception("scales_unknown")
    yield from _check_packages(trials)


def check_plan(program: ExportedProgram, plan: DimPlan) -> Iterator[Finding]:
    """Check that a program's constraints equal the planned dims: not narrower, wider or fixed."""
    try:
        symbols = check_program(program, plan)
    except DimPlanViolated as violated:
        yield Finding(subject=PLAN, case=violated.where, passed=False, detail=violated.message)
        return
    for name in symbols:
        dim = plan.dim(name)
        bounds = f"{dim.low} or more" if dim.high is None else f"{dim.low} to {dim.high:,}"
        yield Finding(subject=PLAN, case=name, passed=True, detail=f"{bounds}, as planned")


def _check_packages(trials: Trials) -> Iterator[Finding]:
    """Run the packages in a process of their own, which is started again should a case crash it."""
    with ExitStack() as running:
        runner: PackageRunner | None = None
        for trial, checks in trials:
            for check in checks:
                if runner is None or runner.has_crashed:
                    try:
                        runner = running.enter_context(trial.runnable.make_runner())
                    except Exception as error:  # noqa: BLE001  packages that do not load fail in all cases
                        yield _report_error(check, trial.batch, error)
                        return
                trial.runner = runner
                if failure := trial.find_eager_failure():
                    log.warning("case_left_out case=%s eager=%s", trial.batch.name, failure)
                    break
                yield _run(check, trial)


def _run(check: Check, trial: Trial) -> Finding:
    try:
        result = check.run(trial)
    except Exception as error:  # noqa: BLE001  whatever a case raises is its finding, and the others go on
        return _report_error(check, trial.batch, error)
    return Finding(
        subject=check.name,
        case=trial.batch.name,
        passed=result.passed,
        sizes=dict(result.sizes or {}),
        of_allowed=result.of_allowed,
        detail=result.detail,
    )


def _report_error(check: Check, batch: NamedBatch, error: Exception) -> Finding:
    message = error.message if isinstance(error, ExportError) else f"{type(error).__name__}: {error}"
    return Finding(subject=check.name, case=batch.name, passed=False, detail=message[:_LONGEST])

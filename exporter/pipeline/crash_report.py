"""Analysis of a tower's process that died: the stage it was in, and the smallest graph that ends it so."""

import logging
import signal
import time
from functools import partial
from pathlib import Path

from exporter.attempt.attempt import DIAGNOSTICS, Attempt, TowerResult
from exporter.attempt.stage_timeout import describe_last_stage, find_stage_timeout, read_last_stage
from exporter.data.batch import verification_batches
from exporter.distributed.isolation import run_isolated
from exporter.distributed.time_limit import enforce_time_limit
from exporter.errors import AttemptFailed, TowerDied
from exporter.minify.on_failure import BUDGET_S, describe_interrupted_search, minify_programs, minify_towers
from exporter.minify.script_runner import ExpectedEnding
from exporter.outcome import Failure
from exporter.packages.parts import plan_packages, trace_parts
from exporter.packages.request import likely_op_libraries
from exporter.pipeline.open_tower import OpenedTower, describe_inputs, open_tower
from exporter.spec import ExportSpec
from exporter.stages import Stage, StageClock
from exporter.towers.plan import TowerToExport
from exporter.trace.op_libraries import all_graphs, find_known_libraries

log = logging.getLogger(__name__)

_LIMIT_S = 360.0  # for all of it: opening, tracing and the search, which ends before
_SPARE_S = 30.0
_STAGES_WITH_PROGRAMS = (Stage.COMPILE, Stage.VERIFY)


def report_dead_tower(planned: TowerToExport, attempt: Attempt, config_text: str, how: str) -> TowerResult:
    """Return the result of a tower whose process ended, as `how` says, before it returned a result."""
    timeout = find_stage_timeout(attempt, planned.name)
    at = describe_last_stage(attempt, planned.name)
    error: AttemptFailed = timeout or TowerDied(
        f"the process that exported the {planned.name} tower {how}{at}"
    )
    if timeout is not None or "SIGKILL" not in how:  # what was killed for its memory would be again
        expected = _expected_ending("" if timeout else how)
        search = partial(_minify_crash, planned, attempt, config_text, expected)
        diagnostics = attempt.workspace / planned.name / DIAGNOSTICS
        found = run_isolated(search, on_death=partial(_report_dead_search, diagnostics))
        error.report = "\n\n".join(filter(None, [found, error.report]))
    return TowerResult(planned=planned, failure=Failure.of(error))


def _report_dead_search(diagnostics: Path, how: str) -> str:
    report = f"A second process, which looked for the smallest graph that ends it so, {how}."
    return f"{report} {describe_interrupted_search(diagnostics)}".strip()


def _expected_ending(how: str) -> ExpectedEnding:
    """Return how scripts must end: by the same signal; or hanging, if `how` is empty."""
    named = how.rpartition(" ")[2]
    if named in signal.Signals.__members__:
        return ExpectedEnding(kinds=(f"signal {signal.Signals[named].value}",))
    return ExpectedEnding(kinds=() if how else ("hang",))


def _minify_crash(
    planned: TowerToExport, attempt: Attempt, config_text: str, expected: ExpectedEnding
) -> str:
    """Open the tower again and search for the smallest graph; each try runs in a process of its own."""
    diagnostics = attempt.workspace / planned.name / DIAGNOSTICS
    stage, until = read_last_stage(attempt, planned.name), time.monotonic() + _LIMIT_S - _SPARE_S
    spec = attempt.spec.without_items()  # to read all their ids again would take long, and tell nothing
    clock = StageClock(planned.name, lambda event: None)  # nobody listens: the tower has failed
    with enforce_time_limit(_LIMIT_S, diagnostics.with_name("crash_report_timeout.txt"), what=stage):
        try:
            opened = open_tower(planned, spec, config_text, attempt.workspace, clock).without_fp32()
            (diagnostics / "sizes.txt").write_text(describe_inputs(opened.inputs))
            if stage == Stage.TRACE:
                return _minify_untraceable(opened, spec, diagnostics, expected, until)
            if stage in _STAGES_WITH_PROGRAMS:
                return _minify_programs(opened, spec, diagnostics, expected, until)
        except Exception as error:  # the death itself must be reported all the same
            log.exception("crash_report_failed", extra={"tower": planned.name})
            return f"The smallest graph that ends it so was not found: {error}"
    return ""


def _budget_s(until: float) -> float:
    return min(BUDGET_S, until - time.monotonic())


def _minify_untraceable(
    opened: OpenedTower, spec: ExportSpec, diagnostics: Path, expected: ExpectedEnding, until: float
) -> str:
    others = next(iter(verification_batches(opened.rows, opened.tower.plan))).inputs
    packages = plan_packages(opened.tower, spec)
    return minify_towers(
        [part.tower for part in packages.parts],
        packages.first_inputs(opened.inputs),
        packages.first_inputs(others),
        diagnostics,
        libraries=likely_op_libraries(opened.tower),
        expected=expected,
        budget_s=_budget_s(until),
    )


def _minify_programs(
    opened: OpenedTower, spec: ExportSpec, diagnostics: Path, expected: ExpectedEnding, until: float
) -> str:
    packages = plan_packages(opened.tower, spec)
    inputs = packages.first_inputs(opened.inputs)
    traced = trace_parts(packages.parts, inputs, opened.device, passes=spec.passes_of(opened.tower.name))
    programs = [each.program for each in traced]
    for each in traced:
        (diagnostics / f"{each.part.name}_program.txt").write_text(str(each.program))
    libraries = find_known_libraries(all_graphs(programs))
    return minify_programs(
        programs, inputs, diagnostics, libraries=libraries, expected=expected, budget_s=_budget_s(until)
    )

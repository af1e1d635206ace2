"""What can be found out about a tower whose process died: where it was, and the smallest case of it."""

import logging
import signal
import time
from functools import partial
from pathlib import Path

from exporter.attempt.attempt import EVIDENCE, Attempt, TowerResult
from exporter.attempt.stage_timeout import died_at, last_stage, overran
from exporter.construction.open_tower import Opened, open_tower
from exporter.data.batch import verification_batches
from exporter.distributed.isolation import run_isolated
from exporter.distributed.time_limit import enforce_time_limit
from exporter.errors import AttemptFailed, TowerDied
from exporter.minify.on_failure import BUDGET_S, describe_interrupted_search, minify_programs, minify_towers
from exporter.minify.script_runner import ExpectedEnding
from exporter.outcome import Failure
from exporter.packages.parts import Packaging, packaging_of, sizes_text, trace_parts
from exporter.packages.request import untraced_libraries
from exporter.stages import Stage
from exporter.towers.plan import TowerToExport
from exporter.trace.op_libraries import all_graphs, find_known_libraries

log = logging.getLogger(__name__)

_LIMIT_S = 360.0  # for all of it: opening, tracing and the search, which ends before
_SPARE_S = 30.0
_OF_PROGRAMS = (Stage.COMPILE, Stage.VERIFY)


def tower_died(planned: TowerToExport, attempt: Attempt, config_text: str, how: str) -> TowerResult:
    """The result of a tower whose process ended before it could say anything."""
    overrun = overran(attempt, planned.name)
    at = died_at(attempt, planned.name)
    error: AttemptFailed = overrun or TowerDied(
        f"the process that exported the {planned.name} tower {how}{at}"
    )
    if overrun is not None or "SIGKILL" not in how:  # what was killed for its memory would be again
        expected = _expected("" if overrun else how)
        search = partial(_made_small, planned, attempt, config_text, expected)
        evidence = attempt.workspace / planned.name / EVIDENCE
        found = run_isolated(search, on_death=partial(_ended, evidence))
        error.report = "\n\n".join(filter(None, [found, error.report]))
    return TowerResult(planned=planned, failure=Failure.of(error))


def _ended(evidence: Path, how: str) -> str:
    told = f"A second process, which looked for the smallest graph that ends it so, {how}."
    return f"{told} {describe_interrupted_search(evidence)}".strip()


def _expected(how: str) -> ExpectedEnding:
    """What scripts must end by: the same signal; where nothing is said of how it died, it hung."""
    named = how.rpartition(" ")[2]
    if named in signal.Signals.__members__:
        return ExpectedEnding(kinds=(f"signal {signal.Signals[named].value}",))
    return ExpectedEnding(kinds=() if how else ("hang",))


def _made_small(planned: TowerToExport, attempt: Attempt, config_text: str, expected: ExpectedEnding) -> str:
    """Open the tower again and search; what hangs or dies is tried in processes of its own."""
    evidence = attempt.workspace / planned.name / EVIDENCE
    stage, until = last_stage(attempt, planned.name), time.monotonic() + _LIMIT_S - _SPARE_S
    with enforce_time_limit(_LIMIT_S, evidence.with_name("aftermath.txt"), what=stage):
        try:
            opened = open_tower(planned, attempt.spec, config_text, attempt.workspace)
            packaging = packaging_of(opened.tower, attempt.spec)
            (evidence / "sizes.txt").write_text(sizes_text(opened.inputs))
            if stage == Stage.TRACE:
                return _untraceable(packaging, opened, evidence, expected, until)
            if stage not in _OF_PROGRAMS:
                return ""
            return _of_programs(packaging, opened, attempt, evidence, expected, until)
        except Exception as error:  # the death itself must be told all the same
            log.exception("aftermath_failed", extra={"tower": planned.name})
            return f"The smallest graph that ends it so was not found: {error}"


def _budget_s(until: float) -> float:
    return min(BUDGET_S, until - time.monotonic())


def _untraceable(
    packaging: Packaging, opened: Opened, evidence: Path, expected: ExpectedEnding, until: float
) -> str:
    others = next(iter(verification_batches(opened.rows, opened.tower.plan))).inputs
    return minify_towers(
        [part.tower for part in packaging.parts],
        packaging.entering(opened.inputs),
        packaging.entering(others),
        evidence,
        libraries=untraced_libraries(opened.tower),
        expected=expected,
        budget_s=_budget_s(until),
    )


def _of_programs(
    packaging: Packaging,
    opened: Opened,
    attempt: Attempt,
    evidence: Path,
    expected: ExpectedEnding,
    until: float,
) -> str:
    passes = tuple(each for each in attempt.spec.passes if each.tower is opened.tower.name)
    inputs = packaging.entering(opened.inputs)
    traced = trace_parts(packaging.parts, inputs, opened.device, passes=passes)
    programs = [each.program for each in traced]
    for each in traced:
        (evidence / f"{each.part.name}_program.txt").write_text(str(each.program))
    libraries = find_known_libraries(all_graphs(programs))
    return minify_programs(
        programs, inputs, evidence, libraries=libraries, expected=expected, budget_s=_budget_s(until)
    )

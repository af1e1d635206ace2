"""The gate: a tower's packages pass all checks in all cases, and only then may be published."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.errors import OutOfMemory, PackageCrashed, VerificationFailed
from exporter.manifest import CaseReport, VerificationReport
from exporter.stages import Progress
from exporter.verify.cases import Cases
from exporter.verify.check_list import CHECKS
from exporter.verify.checks.check import Check, CheckResult, Trial, describe_sizes
from exporter.verify.diagnosis import diagnose
from exporter.verify.runnable_tower import RunnableTower

log = logging.getLogger(__name__)


def verify_tower(runnable: RunnableTower, cases: Cases, progress: Progress) -> VerificationReport:
    """Run every check on its cases: first those of programs, then those of packages, case by case.

    Raises:
        VerificationFailed: naming the case, its sizes, the output and the difference.
        OutOfMemory: naming the case.
        PrecisionLost: the package does what eager does, too far from the model in fp32.
    """
    checks = [check(runnable) for check in CHECKS]
    for check in checks:
        if not check.needs_packages:
            _check_programs(check, runnable, cases, progress)
    for check in checks:
        check.prepare(cases)
    reports = _check_packages([each for each in checks if each.needs_packages], runnable, cases, progress)
    _require_passed(reports, runnable, cases)
    report = VerificationReport(
        tolerance=runnable.tolerance,
        largest_difference=max(report.largest_difference or 0.0 for report in reports),
        cases=tuple(reports),
    )
    for check in checks:
        report = check.conclude(report)
    return report


def _check_programs(check: Check, runnable: RunnableTower, cases: Cases, progress: Progress) -> None:
    for batch in check.select_for_gate(cases):
        progress(0.0, f"{batch.name}: {check.activity or check.title}")
        _run(check, Trial(runnable=runnable, batch=batch))


def _check_packages(
    checks: Sequence[Check], runnable: RunnableTower, cases: Cases, progress: Progress
) -> list[CaseReport]:
    """Run the packages in a fresh process, which is replaced if a check lets it crash."""
    batches = [*cases.must_agree, *cases.must_be_refused]
    selected = [(check, check.select_for_gate(cases)) for check in checks]
    reports: list[CaseReport] = []
    with ExitStack() as running:
        runner = running.enter_context(runnable.make_runner())
        for done, batch in enumerate(batches):
            if runner.has_crashed:
                runner = running.enter_context(runnable.make_runner())
            trial = Trial(runnable=runnable, batch=batch, runner=runner)
            chosen = [check for check, selection in selected if batch in selection]
            progress(done / len(batches), f"{batch.name}: {chosen[0].activity or chosen[0].title}")
            results = [_run(check, trial) for check in chosen]
            reports += [result.report for result in results if result.report is not None]
    return reports


def _run(check: Check, trial: Trial) -> CheckResult:
    """Run a check on one case; raise its error, unless the failure is in a report and raised at the end."""
    place, case = check.describe_place(trial), trial.batch.name
    with _name_place(place, case):
        result = check.run(trial)
    if result.error is not None:
        raise result.error
    if not result.passed and result.report is None:
        raise check.error(f"{place}: {result.detail}", where=case)
    return result


@contextmanager
def _name_place(place: str, case: str) -> Iterator[None]:
    """Name the case in the error of a crash or a lack of memory inside, of eager or of the package."""
    try:
        yield
    except Exception as error:
        if memory := as_out_of_memory(error):
            raise OutOfMemory(f"{place}: {memory.message}", where=case) from error
        if isinstance(error, PackageCrashed):
            raise PackageCrashed(f"{place}: {error.message}", where=case) from error
        raise


def _require_passed(reports: Sequence[CaseReport], runnable: RunnableTower, cases: Cases) -> None:
    failed = [report for report in reports if not report.passed]
    if failed:
        raise VerificationFailed(
            f"{runnable.title}: {len(failed)} of {len(reports)} cases failed; first: "
            f"{_describe_failure(failed[0], runnable.tolerance)}{_diagnose(failed, runnable, cases)}",
            hint="nothing of this tower was published; report the case with the pipeline config",
            where=failed[0].name,
        )


def _diagnose(failed: Sequence[CaseReport], runnable: RunnableTower, cases: Cases) -> str:
    """Return what is wrong in words that follow the first failure, which a failing search must not hide."""
    names = {report.name for report in failed}
    batches = [batch for batch in cases.must_agree if batch.name in names]
    try:
        found = diagnose(runnable, batches) if batches else ""
    except Exception:
        log.exception("diagnosis_failed")
        return ""
    return f"; {found}" if found else ""


def _describe_failure(report: CaseReport, tolerance: float) -> str:
    at = describe_sizes(report.sizes)
    if report.largest_difference is None:
        return f"{report.name} ({at}): {report.detail}"
    return (
        f"{report.name} ({at}): {report.output} differs by {report.largest_difference:.3g} "
        f"at scale {report.scale:.3g}, allowed {tolerance:g} of it"
    )

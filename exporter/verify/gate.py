"""The gate: a tower's packages pass all checks in all cases, and only then may be published."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
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
from exporter.verify.runner import PackageRunner
from exporter.verify.trials import Trials

_LARGEST_S = 1.0  # of eager on one core, in the largest batch; lighter ones take the place of a longer one
_LIGHTER_S = 0.4  # in the longest of these, of which there are several

OnChecked = Callable[[Trial], None]

log = logging.getLogger(__name__)


def verify_tower(
    runnable: RunnableTower, cases: Cases, progress: Progress, on_checked: OnChecked = lambda trial: None
) -> VerificationReport:
    """Run every check on its cases: first those of programs, then those of packages, case by case.

    `on_checked` receives each case of the packages after its checks, with what eager and they computed.

    Raises:
        VerificationFailed: naming the case, its sizes, the output and the difference.
        OutOfMemory: naming the case.
        PrecisionLost: the package does what eager does, too far from the model in fp32.
    """
    checks = [check(runnable) for check in CHECKS]
    trials = Trials(
        runnable,
        cases,
        [check for check in checks if check.needs_packages],
        lambda check, cases: check.select_for_gate(cases),
    )
    seconds: dict[str, float] = {}
    with ExitStack() as running:
        runner = running.enter_context(runnable.make_runner().starting())
        with _measure(seconds, "programs"):
            for check in checks:
                if not check.needs_packages:
                    _check_programs(check, runnable, cases, progress)
        with _measure(seconds, "eager"):
            trials.bound_largest(_LARGEST_S, _LIGHTER_S)
            trials.prepare()
        with _measure(seconds, "loading"):
            runner.await_loaded()
        with _measure(seconds, "cases"):
            reports = _check_packages(trials, runner, running, progress, on_checked)
    _require_passed(reports, runnable, trials.cases)
    report = VerificationReport(
        tolerance=runnable.tolerance,
        largest_difference=max(report.largest_difference or 0.0 for report in reports),
        cases=tuple(reports),
        seconds=seconds,
    )
    for check in checks:
        report = check.conclude(report)
    return report


def _check_programs(check: Check, runnable: RunnableTower, cases: Cases, progress: Progress) -> None:
    for batch in check.select_for_gate(cases):
        progress(0.0, f"{batch.name}: {check.activity or check.title}")
        _run(check, Trial(runnable=runnable, batch=batch))


def _check_packages(
    trials: Trials, runner: PackageRunner, running: ExitStack, progress: Progress, on_checked: OnChecked
) -> list[CaseReport]:
    """Run the packages in a fresh process, which is replaced if a check lets it crash.

    Rows longer than real ones, for which eager computes nothing, are no case: what was tried does not count
    them.
    """
    reports: list[CaseReport] = []
    for done, (trial, checks) in enumerate(trials):
        if runner.has_crashed:
            runner = running.enter_context(trial.runnable.make_runner())
        trial.runner = runner
        progress(done / len(trials), f"{trial.batch.name}: {checks[0].activity or checks[0].title}")
        begun = time.perf_counter()
        if failure := trial.find_eager_failure():
            log.warning("case_left_out case=%s eager=%s", trial.batch.name, failure)
            continue
        found = [result.report for result in [_run(check, trial) for check in checks]]
        seconds = round(time.perf_counter() - begun, 4)
        reports += [each.model_copy(update={"seconds": seconds}) for each in found if each is not None]
        on_checked(trial)
    return reports


@contextmanager
def _measure(seconds: dict[str, float], name: str) -> Iterator[None]:
    begun = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - begun, 4)


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
        output = f"{report.output}: " if report.output else ""
        return f"{report.name} ({at}): {output}{report.detail}"
    return (
        f"{report.name} ({at}): {report.output} differs by {report.largest_difference:.3g} "
        f"at scale {report.scale:.3g}, allowed {tolerance:g} of it"
    )

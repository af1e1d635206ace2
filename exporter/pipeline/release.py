"""The end of an export with a release gate: what was published is judged, and the verdict put beside it."""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from exporter.artifact.reports import find_release_report, put_report
from exporter.attempt.attempt import Attempt
from exporter.comparison.compare import ComparisonRequest, compare_releases
from exporter.comparison.runs import RunOptions
from exporter.distributed.isolation import name_process, run_isolated
from exporter.distributed.time_limit import enforce_time_limit, read_overrun
from exporter.errors import AlreadyPublished, ExportError
from exporter.outcome import ExportOutcome, Failure
from exporter.release.judge import judge_release
from exporter.reports.comparison import DIFF_NAME
from exporter.reports.release_report import REPORT_NAME, ReleasedArtifacts, ReleaseReport
from exporter.stages import OnStage, Progress, Stage, StageClock
from exporter.towers.plan import read_config

log = logging.getLogger(__name__)

_NOTE = "release_overrun.txt"
RUNS = RunOptions(max_rows=1000, latency_seconds=0.25)  # the gate has timed calls; a job waits for these


def judge_published(outcome: ExportOutcome, attempt: Attempt, on_stage: OnStage) -> ExportOutcome:
    """Return the outcome with the verdict on what it has published, if the request has a release gate.

    An incomplete release is not judged. Judging can fail, and even end its process: then the release is not
    blessed, and remains published.
    """
    is_gated = attempt.spec.release_gate is not None and outcome.manifest_uri is not None
    is_complete = outcome.failure is None and all(tower.entry is not None for tower in outcome.towers)
    if not is_gated or not is_complete or outcome.release is not None:
        return outcome
    attempt.on_published(outcome)
    candidate = list_candidate(outcome, attempt)
    report = run_isolated(
        partial(_judge_in_child, candidate, attempt, on_stage),
        on_death=lambda how: _report_failure(candidate, attempt, _describe_death(attempt, how)),
    )
    judged = _publish_verdict(outcome, report, attempt)
    if attempt.baseline is not None:
        compare = partial(_publish_comparison, attempt.baseline, candidate, attempt)
        run_isolated(compare, on_death=lambda how: log.warning("releases_not_compared", extra={"how": how}))
    return judged


def list_candidate(outcome: ExportOutcome, attempt: Attempt) -> ReleasedArtifacts:
    """Return the whole release: what this attempt has published, and what a retry keeps of earlier jobs."""
    own = {tower.tower: attempt.artifact_uri for tower in outcome.towers}
    return ReleasedArtifacts(job_id=attempt.job_id, towers={**attempt.siblings, **own})


def _judge_in_child(candidate: ReleasedArtifacts, attempt: Attempt, on_stage: OnStage) -> ReleaseReport:
    name_process("release gate")
    own = [str(name) for name, uri in candidate.towers.items() if uri == attempt.artifact_uri]
    try:
        with _stage_of(own, on_stage) as progress, _limit_time(attempt):
            return _judge(candidate, attempt, progress)
    except Exception as error:
        log.exception("release_not_judged")
        failure = Failure.of(error)
        return _report_failure(candidate, attempt, f"{failure.code}: {failure.message}")


def _judge(candidate: ReleasedArtifacts, attempt: Attempt, progress: Progress) -> ReleaseReport:
    gate = attempt.spec.release_gate
    assert gate is not None, "only a request with a release gate gets here"
    if attempt.obstacle:
        return _report_failure(candidate, attempt, attempt.obstacle)
    _require_readable(attempt)
    return judge_release(
        candidate,
        attempt.baseline,
        gate,
        config_text=read_config(attempt.spec),
        scratch=_make_scratch(attempt),
        item_input_uri=attempt.spec.item_input_uri,
        families=attempt.families,
        progress=progress,
        server=attempt.runners,
    )


def _require_readable(attempt: Attempt) -> None:
    """Raise UriNotAllowed if the job may not read an earlier artifact that it was given."""
    baseline = attempt.baseline.towers.values() if attempt.baseline else ()
    for uri in dict.fromkeys([*baseline, *attempt.siblings.values()]):
        attempt.places.require_readable_artifact(uri)


def _publish_comparison(baseline: ReleasedArtifacts, candidate: ReleasedArtifacts, attempt: Attempt) -> None:
    """Write diff.json, which people read before they promote; the verdict does not depend on it."""
    name_process("release diff")
    try:
        _require_readable(attempt)
        request = ComparisonRequest(families=attempt.families, runs=RUNS, server=attempt.runners)
        with _limit_time(attempt):
            comparison = compare_releases(baseline, candidate, request, scratch=_make_scratch(attempt))
        store = attempt.open_output(attempt.artifact_uri)
        put_report(DIFF_NAME, comparison, store, may_write=attempt.await_lease)
    except AlreadyPublished:  # by an earlier attempt, which compared the same artifact
        return
    except Exception:
        log.exception("releases_not_compared")


def _publish_verdict(outcome: ExportOutcome, report: ReleaseReport, attempt: Attempt) -> ExportOutcome:
    """Write release.json; if an earlier attempt has written its verdict there, that stands."""
    sha256: str | None = None
    store = attempt.open_output(attempt.artifact_uri)
    try:
        sha256 = put_report(REPORT_NAME, report, store, may_write=attempt.await_lease)
    except AlreadyPublished:
        if (found := find_release_report(store, attempt.job_id)) is not None:
            report, sha256 = found.report, found.sha256
    except ExportError:
        log.warning("release_report_not_written", exc_info=True)
    return outcome.model_copy(update={"release": report, "release_sha256": sha256})


@contextmanager
def _stage_of(towers: Sequence[str], on_stage: OnStage) -> Iterator[Progress]:
    """Report the stage for every tower of the attempt: they are judged together."""
    with ExitStack() as stack:
        reports = [stack.enter_context(StageClock(name, on_stage).stage(Stage.RELEASE)) for name in towers]

        def report_all(fraction: float | None, detail: str) -> None:
            for report in reports:
                report(fraction, detail)

        yield report_all


@contextmanager
def _limit_time(attempt: Attempt) -> Iterator[None]:
    with enforce_time_limit(attempt.stage_limit_s, attempt.workspace / _NOTE, what=Stage.RELEASE):
        yield


def _make_scratch(attempt: Attempt) -> Path:
    return Path(tempfile.mkdtemp(dir=attempt.workspace, prefix="release-"))


def _describe_death(attempt: Attempt, how: str) -> str:
    if read_overrun(attempt.workspace / _NOTE) is not None:
        return f"stage release took more than {attempt.stage_limit_s:g} s and was ended"
    return f"the process that judged the release {how}"


def _report_failure(candidate: ReleasedArtifacts, attempt: Attempt, why: str) -> ReleaseReport:
    """Return the report on a release that could not be judged."""
    baseline = attempt.baseline.job_id if attempt.baseline else None
    return ReleaseReport(
        job_id=candidate.job_id,
        baseline=baseline,
        blessed=False,
        findings=(),
        failure=why,
        rows=0,
        seconds=0.0,
    )

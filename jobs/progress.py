"""Apply the reports of an attempt to a job's record: pure functions."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.stages import StageEvent
from jobs.model import Job, TowerProgress, TowerState, VerificationSummary
from jobs.verdicts import ReleaseVerdict


def fold_events(job: Job, events: Iterable[StageEvent]) -> Job:
    """Return the job after these events; an event of an unknown tower changes nothing."""
    towers = {str(tower.name): tower for tower in job.current_towers}
    for event in events:
        if event.tower in towers:
            towers[event.tower] = _apply_event(towers[event.tower], event)
    return job.model_copy(
        update={"towers": tuple(towers[each.name] if job.is_current(each) else each for each in job.towers)}
    )


def finish(job: Job, outcome: ExportOutcome, now: datetime, pause: timedelta = timedelta(0)) -> Job:
    """Return the job after its outcome; set back, with a pause, if another attempt may help."""
    outcomes = {tower.tower: tower for tower in outcome.towers}
    towers = tuple(
        _end_tower(tower, outcomes.get(tower.name), outcome) if job.is_current(tower) else tower
        for tower in job.towers
    )
    reported = _add_manifest(job.model_copy(update={"towers": towers, "failure": None}), outcome)
    reported = _add_verdict(reported, outcome)
    failures = [tower.failure for tower in reported.current_towers if tower.failure]
    if len(failures) < len(reported.current_towers):
        return reported.end_target(now)
    failure = outcome.failure or failures[0]
    if all(each.retryable for each in failures):
        return reported.set_back(failure, now, pause)
    return reported.fail(failure, now)


def _add_manifest(job: Job, outcome: ExportOutcome) -> Job:
    """Return the job with the manifest that its attempt published, if it did."""
    uris = {**job.manifest_uris, job.current_target: outcome.manifest_uri or ""}
    several = len(job.spec.targets) > 1 and outcome.manifest_uri is not None
    return job.model_copy(
        update={
            "manifest_uri": (several and job.manifest_uri) or outcome.manifest_uri or job.manifest_uri,
            "manifest_uris": uris if several else job.manifest_uris,
        }
    )


def _add_verdict(job: Job, outcome: ExportOutcome) -> Job:
    """Return the job with the verdict on what its attempt published, if its request has a release gate."""
    if job.spec.release_gate is None or outcome.manifest_uri is None:
        return job
    target = job.current_target if job.spec.target else None
    failed = [tower.name for tower in job.current_towers if tower.state is TowerState.FAILED]
    if outcome.release is not None:
        verdict = ReleaseVerdict.of(outcome.release, target, outcome.release_sha256)
    elif failed:
        why = f"not judged: the release is not complete without its {' and '.join(failed)}"
        verdict = ReleaseVerdict.unjudged(target, why)
    else:
        verdict = ReleaseVerdict.unjudged(target, "not judged: the attempt ended after it had published")
    others = (each for each in job.verdicts if each.target != target)
    return job.model_copy(update={"verdicts": (*others, verdict)})


def _apply_event(tower: TowerProgress, event: StageEvent) -> TowerProgress:
    match event.kind:
        case "started":
            started_at = datetime.fromtimestamp(event.at, UTC)
            entered = {"state": TowerState.RUNNING, "stage": event.stage, "stage_started_at": started_at}
            return tower.model_copy(update={**entered, "fraction": None, "detail": event.detail})
        case "progress":
            return tower.model_copy(update={"fraction": event.fraction, "detail": event.detail})
        case "noted":
            return tower.model_copy(update={"code_note": event.detail})
        case "finished":
            seconds = {**tower.stage_seconds, event.stage: event.seconds or 0.0}
            return tower.model_copy(update={"stage_seconds": seconds, "fraction": 1.0, "detail": ""})
        case "failed":  # the outcome says why
            return tower


def _end_tower(tower: TowerProgress, reported: TowerOutcome | None, outcome: ExportOutcome) -> TowerProgress:
    if reported is None or reported.entry is None:
        failure = (reported and reported.failure) or outcome.failure or _NO_OUTCOME
        return tower.model_copy(update={"state": TowerState.FAILED, "failure": failure})
    report = reported.entry.verified
    summary = VerificationSummary(
        cases=len(report.cases),
        passed=sum(case.passed for case in report.cases),
        largest_difference=report.largest_difference,
        tolerance=report.tolerance,
    )
    return tower.model_copy(
        update={
            "state": TowerState.SUCCEEDED,
            "fraction": 1.0,
            "detail": "",
            "package_uri": reported.package_uri,
            "package_size": reported.entry.package.size,
            "digest": reported.entry.package.sha256,
            "verification": summary,
            "code": reported.entry.code,
            "reused": reported.entry.reused,
            "code_note": reported.entry.code_note,
        }
    )


_NO_OUTCOME = Failure(
    code="attempt_failed",
    message="the attempt's outcome does not mention this tower",
    hint="see the worker's log",
)

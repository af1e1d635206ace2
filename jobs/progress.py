"""How the reports of an attempt change a job's record: pure functions."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from exporter.outcome import ExportOutcome, Failure, TowerOutcome
from exporter.stages import StageEvent
from jobs.model import Job, TowerProgress, TowerState, VerificationSummary


def fold_events(job: Job, events: Iterable[StageEvent]) -> Job:
    """The job after these events; one about a tower it does not have changes nothing."""
    towers = {str(tower.name): tower for tower in job.current_towers}
    for event in events:
        if event.tower in towers:
            towers[event.tower] = _apply_event(towers[event.tower], event)
    return job.model_copy(
        update={"towers": tuple(towers[each.name] if job.is_current(each) else each for each in job.towers)}
    )


def finish(job: Job, outcome: ExportOutcome, now: datetime, pause: timedelta = timedelta(0)) -> Job:
    """The job as its outcome leaves it; set back, with a pause, when trying again may help."""
    outcomes = {tower.tower: tower for tower in outcome.towers}
    towers = tuple(
        _end_tower(tower, outcomes.get(tower.name), outcome) if job.is_current(tower) else tower
        for tower in job.towers
    )
    told = _add_manifest(job.model_copy(update={"towers": towers, "failure": None}), outcome)
    failures = [tower.failure for tower in told.current_towers if tower.failure]
    if len(failures) < len(told.current_towers):
        return told.end_target(now)
    failure = outcome.failure or failures[0]
    if all(each.retryable for each in failures):
        return told.set_back(failure, now, pause)
    return told.fail(failure, now)


def _add_manifest(job: Job, outcome: ExportOutcome) -> Job:
    """The job with the manifest that its attempt published, if it did."""
    uris = {**job.manifest_uris, job.current_target: outcome.manifest_uri or ""}
    several = len(job.spec.targets) > 1 and outcome.manifest_uri is not None
    return job.model_copy(
        update={
            "manifest_uri": (several and job.manifest_uri) or outcome.manifest_uri or job.manifest_uri,
            "manifest_uris": uris if several else job.manifest_uris,
        }
    )


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
        case "failed":  # where it stands; why, the outcome tells
            return tower


def _end_tower(tower: TowerProgress, told: TowerOutcome | None, outcome: ExportOutcome) -> TowerProgress:
    if told is None or told.entry is None:
        failure = (told and told.failure) or outcome.failure or _NO_OUTCOME
        return tower.model_copy(update={"state": TowerState.FAILED, "failure": failure})
    report = told.entry.verified
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
            "package_uri": told.package_uri,
            "package_size": told.entry.package.size,
            "digest": told.entry.package.sha256,
            "verification": summary,
            "code": told.entry.code,
            "reused": told.entry.reused,
            "code_note": told.entry.code_note,
        }
    )


_NO_OUTCOME = Failure(
    code="attempt_failed",
    message="the attempt's outcome does not say what became of this tower",
    hint="see the worker's log",
)

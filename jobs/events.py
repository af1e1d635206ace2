"""The events about a job that callers receive: pure functions of two states of its record."""

from collections.abc import Iterator
from datetime import datetime

from pydantic import Field

from exporter.outcome import Failure
from exporter.spec import Frozen, Target, TowerName
from jobs.ids import JobId
from jobs.model import Job, JobState, TowerProgress, TowerState
from jobs.verdicts import ReleaseVerdict
from slipway.rest.names import EventType as EventType  # webhooks import it from here

_TOWER_ENDS = frozenset({TowerState.SUCCEEDED, TowerState.FAILED})


class JobNews(Frozen):
    """The data of an event: the job right after the event."""

    job: JobId
    state: JobState
    attempt: int
    manifest_uri: str | None
    failure: Failure | None
    tower: TowerName | None = None  # in tower.finished
    target: Target | None = None  # the package's target, if the spec names targets
    package_uri: str | None = None
    digest: str | None = None
    # In export.finished of a job with a release gate. Left out otherwise: older programs do not know them.
    blessed: bool | None = Field(default=None, exclude_if=lambda blessed: blessed is None)
    verdicts: tuple[ReleaseVerdict, ...] = Field(  # with the findings that stand against the release
        default=(), exclude_if=lambda verdicts: not verdicts
    )


class JobEvent(Frozen):
    """One event of one job; its id is the same however often it is delivered."""

    id: str
    type: EventType
    time: datetime
    data: JobNews


class OutboxEntry(Frozen):
    """An event on its way to its receivers."""

    event: JobEvent
    callback_url: str | None


def make_outbox_entries(old: Job | None, new: Job) -> tuple[OutboxEntry, ...]:
    """Return the events of the step from `old` to `new`; `old` is None for a job just added."""
    events = tuple(
        JobEvent(id=f"{new.id}.{new.revision}.{number}", type=kind, time=new.updated_at, data=data)
        for number, (kind, data) in enumerate(_find_events(old, new))
    )
    url = str(new.callback_url) if new.callback_url else None
    return tuple(OutboxEntry(event=event, callback_url=url) for event in events)


def _find_events(old: Job | None, new: Job) -> Iterator[tuple[EventType, JobNews]]:
    if new.state is JobState.RUNNING and (old is None or old.attempt < new.attempt):
        yield EventType.EXPORT_STARTED, _make_news(new)
    ended_before = _ended_towers(old) if old else frozenset()
    for tower in new.towers:  # a job that was set back exports its target's towers again
        is_final = new.state is not JobState.QUEUED or tower.target in new.ended_targets
        if is_final and (tower.name, tower.target) in _ended_towers(new) - ended_before:
            yield EventType.TOWER_FINISHED, _make_news(new, tower)
    if new.state.is_final and (old is None or not old.state.is_final):
        yield EventType.EXPORT_FINISHED, _make_news(new)


def _ended_towers(job: Job) -> frozenset[tuple[TowerName, Target | None]]:
    return frozenset((tower.name, tower.target) for tower in job.towers if tower.state in _TOWER_ENDS)


def _make_news(job: Job, tower: TowerProgress | None = None) -> JobNews:
    return JobNews(
        job=job.id,
        state=job.state,
        attempt=job.attempt,
        manifest_uri=job.manifest_uri,
        failure=tower.failure if tower else job.failure,
        tower=tower.name if tower else None,
        target=tower.target if tower else None,
        package_uri=tower.package_uri if tower else None,
        digest=tower.digest if tower else None,
        blessed=None if tower else job.blessed,
        verdicts=()
        if tower or job.blessed is None
        else tuple(each.only_objections() for each in job.verdicts),
    )

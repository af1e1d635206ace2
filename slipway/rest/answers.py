"""Answers of the service; `docs/openapi.json` describes every field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from slipway.rest.json_values import JsonObject
from slipway.rest.names import (
    DeliveryState,
    EventType,
    JobState,
    Priority,
    Stage,
    TowerName,
    TowerState,
)

_OPTIONAL_STAGES = frozenset({Stage.TABLES, Stage.ITEMS, Stage.RELEASE})  # only some exports have these


class Manifest(JsonObject):
    """The description of a published artifact."""


class Comparison(JsonObject):
    """Two releases side by side."""


class PlanView(JsonObject):
    """The towers of an export, with their inputs and which sizes of them vary."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The reason why a tower or a whole export failed, and what the caller can do about it."""

    code: str
    message: str
    hint: str = ""
    where: str = ""
    retryable: bool = False
    report: str = ""
    bundle_url: str = ""


@dataclass(frozen=True, kw_only=True)
class TowerProgress:
    """The progress of one tower, and in the end its result."""

    name: TowerName
    state: TowerState = TowerState.WAITING
    target: str | None = None
    stage: Stage | None = None
    stage_started_at: datetime | None = None
    stage_seconds: Mapping[Stage, float] = field(default_factory=dict)
    fraction: float | None = None  # of the stage, 0 to 1
    detail: str = ""
    code: str | None = None
    code_note: str = ""
    reused: str | None = None
    package_uri: str | None = None
    package_size: int | None = None  # bytes
    digest: str | None = None
    verification: JsonObject | None = None
    failure: Failure | None = None

    @property
    def label(self) -> str:
        """The tower's name, with its target if the job has several packages of that name."""
        return f"{self.name} ({self.target})" if self.target else self.name

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that the tower goes through; optional ones count once they have started."""
        started = {self.stage, *self.stage_seconds}
        return tuple(stage for stage in Stage if stage not in _OPTIONAL_STAGES or stage in started)


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job: what was asked for, where it is, and what became of it."""

    id: str
    state: JobState
    attempt: int
    revision: int
    spec: JsonObject
    family: str | None = None
    towers: tuple[TowerProgress, ...]
    targets: tuple[str, ...]
    unserved: tuple[str, ...] = ()
    priority: Priority
    model: str | None
    labels: Mapping[str, str]
    owner: str
    worker: str | None
    failure: Failure | None
    blessed: bool | None = None
    verdicts: tuple[JsonObject, ...] = ()
    manifest_uri: str | None
    manifest_uris: Mapping[str, str]
    callback_url: str | None
    cancel_requested: bool
    retry_of: str | None
    trace_id: str | None
    created_at: datetime
    updated_at: datetime
    not_before: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class JobList:
    """A page of jobs, newest first."""

    jobs: tuple[JobView, ...]
    next_cursor: str | None


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """Lines of one tower in one stage; without both, the lines before the first stage."""

    lines: tuple[str, ...]
    tower: TowerName | None = None
    stage: Stage | None = None


@dataclass(frozen=True, kw_only=True)
class JobLog:
    """The latest lines that a job's ranks wrote, by tower and stage."""

    job_id: str
    parts: tuple[LogPart, ...]


@dataclass(frozen=True, kw_only=True)
class ModelList:
    """A page of the models that have a release, by name."""

    models: tuple[str, ...]
    next_cursor: str | None


@dataclass(frozen=True, kw_only=True)
class ReleasedTower:
    """One tower's package, and the job that published it."""

    name: TowerName
    job_id: str
    manifest_uri: str
    package_uri: str | None
    package_size: int | None  # bytes
    digest: str | None
    target: str | None = None


@dataclass(frozen=True, kw_only=True)
class Release:
    """One successful export of a model."""

    model: str
    job_id: str
    towers: tuple[ReleasedTower, ...]
    labels: Mapping[str, str]
    finished_at: datetime | None
    blessed: bool | None = None
    verdicts: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker that is alive: the machine it runs on, what it serves, and the jobs that it works on."""

    id: str
    host: str
    pid: int
    device: str
    started_at: datetime
    versions: Mapping[str, str]
    architecture: str = ""
    targets: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    gpus: tuple[JsonObject, ...] = ()
    memory: int | None = None  # bytes: the GPU's, or what the worker's processes may use


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The answer of a service that can accept jobs; callers with a key also see the workers alive."""

    status: str
    workers: int | None = None
    by_device: Mapping[str, int] | None = None
    alive: tuple[Worker, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An error as application/problem+json (RFC 9457)."""

    status: int
    code: str
    detail: str
    title: str = ""
    type: str = "about:blank"
    hint: str = ""
    where: str = ""
    errors: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Trigger:
    """A rule by which training events start exports."""

    name: str
    when: JsonObject
    template: JsonObject
    enabled: bool = True
    uris: JsonObject | None = None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, kw_only=True)
class TriggerView(Trigger):
    """A trigger with its latest results."""

    latest: tuple[JsonObject, ...]


@dataclass(frozen=True, kw_only=True)
class TriggerList:
    """A page of triggers, by name."""

    triggers: tuple[Trigger, ...]
    next_cursor: str | None


@dataclass(frozen=True, kw_only=True)
class TriggerTrial:
    """The result that an event would have with a trigger."""

    starts: bool
    misfits: tuple[str, ...] = ()
    failure: Failure | None = None
    request: JsonObject | None = None
    towers: tuple[TowerName, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SubscriptionView:
    """A URL to which every job's events are sent; its secret is not shown."""

    id: str
    url: str
    events: tuple[EventType, ...]
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, kw_only=True)
class SubscriptionMade(SubscriptionView):
    """A new subscription with its secret, which is shown only once."""

    secret: str


@dataclass(frozen=True, kw_only=True)
class SubscriptionList:
    """A page of subscriptions, oldest first."""

    subscriptions: tuple[SubscriptionView, ...]
    next_cursor: str | None


@dataclass(frozen=True, kw_only=True)
class Try:
    """One try at sending an event, and its result."""

    at: datetime
    seconds: float
    status: int | None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class DeliveryView:
    """One event to be sent to one receiver."""

    id: str
    event_id: str
    event_type: EventType
    job: str
    url: str
    subscription_id: str | None
    state: DeliveryState
    attempts: int
    tries: tuple[Try, ...]
    last_status: int | None
    last_error: str
    reason: str
    next_at: datetime | None
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class DeliveryList:
    """A page of deliveries, newest first."""

    deliveries: tuple[DeliveryView, ...]
    next_cursor: str | None

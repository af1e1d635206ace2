"""A job: one immutable record, its states, and the table of moves between them."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, Self

from pydantic import Field

from exporter.outcome import Failure
from exporter.spec import ExportSpec, Frozen, Target, TowerName
from exporter.stages import Stage
from jobs.errors import IllegalMove, JobFinished, JobNotFinished, JobNotRetryable, LeaseLost
from jobs.ids import JobId
from jobs.request import JobOptions

MAX_SETBACKS = 3
MAX_ABANDONED = 2  # a job under which two workers went away is not given a third
ANYONE = "anyone"  # the owner of jobs where no keys are asked for
NOBODY = "nobody"  # holds a job that is to be closed


class JobState(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"  # accepted; no worker has it
    RUNNING = "running"  # one worker holds the lease
    SUCCEEDED = "succeeded"  # every tower is published
    PARTIALLY_SUCCEEDED = "partially_succeeded"  # some towers are published, others failed
    FAILED = "failed"  # nothing is published; see Job.failure
    CANCELLED = "cancelled"  # stopped at the caller's request

    @property
    def is_final(self) -> bool:
        return self not in MOVES


MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED}),
    JobState.RUNNING: frozenset(JobState) - {JobState.RUNNING},
}  # a finished job moves nowhere


class TowerState(StrEnum):
    """Where one tower is in its attempt."""

    WAITING = "waiting"  # no stage has begun
    RUNNING = "running"
    SUCCEEDED = "succeeded"  # published
    FAILED = "failed"  # see TowerProgress.failure
    CANCELLED = "cancelled"  # its job was; it may have stood in any stage


class VerificationSummary(Frozen):
    """What the manifest's verification report comes to."""

    cases: int
    passed: int
    largest_difference: float
    tolerance: float


_SELDOM = frozenset({Stage.TABLES, Stage.ITEMS})  # stages of exports that ask for them


class TowerProgress(Frozen):
    """One tower: where it is, and in the end what became of it."""

    name: TowerName
    target: Target | None = None  # what this package is for, where the spec names targets
    state: TowerState = TowerState.WAITING
    stage: Stage | None = None
    stage_started_at: datetime | None = None
    fraction: float | None = None  # of this stage, 0 to 1
    detail: str = ""
    stage_seconds: Mapping[Stage, float] = Field(default_factory=dict)
    package_uri: str | None = None
    package_size: int | None = None  # bytes
    digest: str | None = None  # sha256 of the package
    verification: VerificationSummary | None = None
    code: Literal["cold", "warm"] | None = None  # compiled for this export, or taken from the code cache
    reused: Literal["request", "graph"] | None = None  # warm: not traced and not compiled; not compiled
    code_note: str = ""  # why it is cold; said at once where cached code turned out to be wrong
    failure: Failure | None = None

    @property
    def label(self) -> str:
        """The tower as people tell it from others of its job."""
        return f"{self.name} ({self.target})" if self.target else self.name

    def reset(self) -> "TowerProgress":
        return TowerProgress(name=self.name, target=self.target)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages it goes through; those that few ask for count once they have begun."""
        begun = {self.stage, *self.stage_seconds}
        return tuple(stage for stage in Stage if stage not in _SELDOM or stage in begun)

    def stop_running(self) -> Self:
        """This tower when nobody works on it: it runs no more."""
        if self.state is not TowerState.RUNNING:
            return self
        return self.model_copy(update={"state": TowerState.WAITING, "detail": ""})

    def cancel(self) -> Self:
        """This tower when its job is stopped; one that had ended stays as it is."""
        if self.state in (TowerState.SUCCEEDED, TowerState.FAILED):
            return self
        return self.model_copy(update={"state": TowerState.CANCELLED, "detail": ""})

    def fail(self, failure: Failure) -> Self:
        """This tower when it was not published and will not be; its own reason stands."""
        if self.state is TowerState.SUCCEEDED or self.failure is not None:
            return self
        return self.model_copy(update={"state": TowerState.FAILED, "failure": failure})


class Lease(Frozen):
    """A worker's right to a job until a time."""

    worker: str  # of the latest attempt
    until: datetime
    # Another worker, which ends the job and runs no attempt. Left out where there is none: older programs do
    # not know the field.
    closer: str | None = Field(default=None, exclude_if=lambda closer: closer is None)


class Job(JobOptions):
    """One accepted export."""

    version: Literal[1, 2] = 2  # of this layout; what is written may be an older one (see jobs.stores.record)
    revision: int = 1  # grows by one with every change
    id: JobId
    spec: ExportSpec  # with the pipeline config's text as it was at submit
    config_uri: str | None = None  # where that text came from
    owner: str = ANYONE  # whose quota it counts against
    running_limit: int | None = None  # jobs of the owner that may run at a time
    retry_of: JobId | None = None  # the finished job whose failed towers this one runs
    content_key: str | None = None  # equal for jobs that would make the same artifact
    traceparent: str | None = None  # of the request that asked for it, where that is traced
    state: JobState = JobState.QUEUED
    towers: tuple[TowerProgress, ...]
    attempt: int = 0  # how many were begun
    setbacks: int = 0  # attempts that ended without a result
    abandoned: int = 0  # those of them whose worker stopped renewing its lease
    not_before: datetime | None = None  # a job that was set back is not begun again until then
    lease: Lease | None = None
    cancel_requested: bool = False
    failure: Failure | None = None
    manifest_uri: str | None = None  # of the first target that was published
    manifest_uris: Mapping[Target, str] = Field(default_factory=dict)  # by target, where there are several
    target: Target | None = None  # of the latest attempt
    ended_targets: tuple[Target, ...] = ()  # published, or given up
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None  # of the latest attempt
    finished_at: datetime | None = None

    @property
    def pending_targets(self) -> tuple[Target, ...]:
        """The targets still to be exported for."""
        return tuple(target for target in self.spec.targets if target not in self.ended_targets)

    @property
    def busy_targets(self) -> tuple[Target, ...]:
        """Where the job counts: among what waits for each of its targets, or among what runs for one."""
        if self.state is JobState.RUNNING:
            return (self.current_target,)
        return self.pending_targets if self.state is JobState.QUEUED else ()

    @property
    def current_target(self) -> Target:
        """What the latest attempt exports for; records of version 1 have one target only."""
        return self.target or self.spec.targets[0]

    @property
    def current_towers(self) -> tuple[TowerProgress, ...]:
        return tuple(tower for tower in self.towers if self.is_current(tower))

    def is_current(self, tower: TowerProgress) -> bool:
        """Whether the latest attempt is about this tower."""
        return tower.target in (None, self.current_target)

    @property
    def current_spec(self) -> ExportSpec:
        """What the latest attempt exports: for its target, and of a retry what had failed for it."""
        spec = self.spec.for_target(self.current_target)
        names = tuple(tower.name for tower in self.current_towers)
        return spec if set(names) == {tower.name for tower in self.towers} else spec.only(names)

    @property
    def ranks(self) -> int:
        return max(self.spec.ranks or len(self.current_towers), self.hosts)

    @property
    def hosts(self) -> int:
        return self.spec.nodes or 1

    def move_to(self, state: JobState, now: datetime) -> Self:
        """This job in another state, or IllegalMove."""
        if state not in MOVES.get(self.state, frozenset()):
            raise IllegalMove(f"a {self.state} job cannot become {state}", where=self.id)
        stopped = state is JobState.CANCELLED
        return self.model_copy(
            update={
                "state": state,
                "lease": None,
                "finished_at": now if state.is_final else None,
                "towers": tuple(tower.cancel() if stopped else tower.stop_running() for tower in self.towers),
            }
        )

    def begin_attempt(self, lease: Lease, target: Target, now: datetime) -> Self:
        """Begin an attempt: every tower of its target starts afresh."""
        begun = self.move_to(JobState.RUNNING, now).model_copy(
            update={
                "lease": lease,
                "attempt": self.attempt + 1,
                "target": target if self.spec.target else None,
                "failure": None,
                "not_before": None,
                "started_at": now,
            }
        )
        fresh = tuple(tower.reset() if begun.is_current(tower) else tower for tower in self.towers)
        return begun.model_copy(update={"towers": fresh})

    def require_held_by(self, worker: str, attempt: int) -> Self:
        """This job, or LeaseLost when `worker`'s attempt no longer has it."""
        lease = self.lease
        if lease is None or (lease.worker, lease.closer, self.attempt) != (worker, None, attempt):
            raise LeaseLost(f"attempt {attempt} of {worker} no longer holds job {self.id}")
        return self

    def require_closed_by(self, closer: str, attempt: int) -> Self:
        """This job, or LeaseLost when `closer` no longer has it to end after that attempt."""
        if self.lease is None or (self.lease.closer, self.attempt) != (closer, attempt):
            raise LeaseLost(f"{closer} no longer has job {self.id} to end it")
        return self

    def has_expired(self, now: datetime) -> bool:
        return self.lease is not None and self.lease.until < now

    def is_due(self, now: datetime) -> bool:
        """Whether its pause, if it has one, is over; none outlasts a clock that was set back."""
        return self.not_before is None or self.not_before <= now or now < self.updated_at

    def request_cancel(self, now: datetime) -> Self:
        """Cancel at once what was never begun, else ask the worker to stop, or any to close it."""
        if self.state.is_final:
            raise JobFinished(f"job {self.id} has already ended: it is {self.state}")
        asked = self.model_copy(update={"cancel_requested": True})
        if self.state is JobState.RUNNING or self.cancel_requested:
            return asked
        return asked.await_closing(now) if self.attempt else asked.move_to(JobState.CANCELLED, now)

    def await_closing(self, now: datetime) -> Self:
        """Queued for no attempt: a worker is to see what its attempts left, and to end it.

        Nobody holds it: its lease has ended as it is made, by which the sweep finds it.
        """
        return self.model_copy(update={"lease": Lease(worker=NOBODY, until=now)})

    def towers_to_retry(self) -> tuple[TowerProgress, ...]:
        """The towers that failed, of a job that has ended; JobNotRetryable if there are none."""
        failed = tuple(tower for tower in self.towers if tower.state is TowerState.FAILED)
        if not self.state.is_final or not failed:
            raise JobNotRetryable(
                f"job {self.id} has {self.state}: there is no failed tower to run again",
                hint="only a job that has failed, wholly or in part, can be retried",
            )
        return failed

    def require_removable(self) -> Self:
        """This job, or JobNotFinished while it may still run."""
        if not self.state.is_final:
            raise JobNotFinished(
                f"job {self.id} is {self.state}", hint="cancel it, and delete it once it has ended"
            )
        return self

    def hand_back(self, now: datetime) -> Self:
        """Queued again, with nothing held against it; to be closed, if it was cancelled meanwhile."""
        queued = self.move_to(JobState.QUEUED, now)
        return queued.await_closing(now) if self.cancel_requested else queued

    def set_back(self, failure: Failure, now: datetime, pause: timedelta = timedelta(0)) -> Self:
        """An attempt broke: queued again, or failed for good when that will not help.

        It is begun again after `pause`, four times as long after every further attempt, so that whatever
        broke it has time to recover.
        """
        counted = self.model_copy(update={"setbacks": self.setbacks + 1, "failure": failure})
        if self.cancel_requested:
            return counted.hand_back(now)
        if not failure.retryable or counted.setbacks >= MAX_SETBACKS:
            return counted.fail(failure, now)
        due = now + pause * 4**self.setbacks if pause else None
        return counted.hand_back(now).model_copy(update={"not_before": due})

    def abandon(self, failure: Failure, now: datetime) -> Self:
        """Its worker went away: set back, but not tried again once it has cost two workers."""
        counted = self.model_copy(update={"abandoned": self.abandoned + 1})
        if counted.abandoned < MAX_ABANDONED:
            return counted.set_back(failure, now)
        message = f"two workers went away while they ran it; the last: {failure.message}"
        last = failure.model_copy(update={"message": message, "retryable": False})
        return counted.set_back(last, now)

    def fail(self, failure: Failure, now: datetime) -> Self:
        if self.setbacks >= MAX_SETBACKS:
            message = f"gave up after {self.setbacks} attempts; the last: {failure.message}"
            failure = failure.model_copy(update={"message": message})
        towers = tuple(tower.fail(failure) if self.is_current(tower) else tower for tower in self.towers)
        return self.model_copy(update={"towers": towers, "failure": failure}).end_target(now)

    def end_target(self, now: datetime) -> Self:
        """The latest attempt's target is done with: queued for the next one, or the end."""
        counted = self.model_copy(
            update={"ended_targets": (*self.ended_targets, self.current_target), "setbacks": 0}
            if len(self.spec.targets) > 1
            else {}
        )
        if len(self.spec.targets) > 1 and counted.pending_targets:
            return counted.hand_back(now)
        published = sum(tower.state is TowerState.SUCCEEDED for tower in self.towers)
        if published == len(self.towers):
            return counted.move_to(JobState.SUCCEEDED, now)
        if published:
            ended = counted.move_to(JobState.PARTIALLY_SUCCEEDED, now)
            return ended.model_copy(update={"failure": None})
        return counted.move_to(JobState.FAILED, now)

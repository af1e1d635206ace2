"""The record of a job: its states, the moves between them, and how each step changes the record.

An accepted export is a job. It waits in the queue until a worker claims it with a lease and runs one attempt.
The attempt ends the job or sets it back: it is queued again after a pause, until MAX_SETBACKS attempts have
broken. A worker that shuts down hands its job back, and one that stops renewing its lease has abandoned it. A
job with several targets is exported for one after the other, and queued in between. Records are immutable:
every step returns a new record, which `jobs.lease` stores only if nobody else has changed the old one.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal, Self

from pydantic import Field

from exporter.outcome import Failure
from exporter.spec import Frozen, Target, TowerName
from exporter.stages import Stage
from exporter.storage.uris import NO_RULES, UriRules
from jobs.errors import IllegalMove, JobFinished, JobNotFinished, JobNotRetryable, LeaseLost
from jobs.ids import JobId
from jobs.request import JobOptions
from jobs.route import Route, make_route
from jobs.spec import JobSpec
from jobs.verdicts import ReleaseVerdict as ReleaseVerdict  # the record's views import it from here
from jobs.verdicts import is_blessed
from slipway.rest.names import JobState as JobState  # as this one and the next
from slipway.rest.names import TowerState as TowerState

MAX_SETBACKS = 3
MAX_ABANDONED = 2  # a job that two workers have abandoned is not given to a third
ANYONE = "anyone"  # owner of jobs where no API keys are required
NOBODY = "nobody"  # worker in the lease of a job that is to be closed


MOVES: dict[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.RUNNING, JobState.CANCELLED}),
    JobState.RUNNING: frozenset(JobState) - {JobState.RUNNING},
}  # a finished job moves nowhere


class VerificationSummary(Frozen):
    """A summary of the manifest's verification report."""

    cases: int
    passed: int
    largest_difference: float
    tolerance: float


_OPTIONAL_STAGES = frozenset(
    {Stage.TABLES, Stage.ITEMS, Stage.RELEASE}
)  # only exports that ask for them have these


class TowerProgress(Frozen):
    """The progress of one tower, and in the end its result."""

    name: TowerName
    target: Target | None = None  # the package's target, if the spec names targets
    state: TowerState = TowerState.WAITING
    stage: Stage | None = None
    stage_started_at: datetime | None = None
    fraction: float | None = None  # completed share of this stage, 0 to 1
    detail: str = ""
    stage_seconds: Mapping[Stage, float] = Field(default_factory=dict)
    package_uri: str | None = None
    package_size: int | None = None  # bytes
    digest: str | None = None  # sha256 of the package
    verification: VerificationSummary | None = None
    code: Literal["cold", "warm"] | None = None  # compiled for this export, or taken from the code cache
    reused: Literal["request", "graph"] | None = None  # warm: neither traced nor compiled; not compiled
    code_note: str = ""  # why it is cold; set at once if cached code turned out to be wrong
    failure: Failure | None = None

    @property
    def label(self) -> str:
        """The tower's name, with its target if the job has several packages of that name."""
        return f"{self.name} ({self.target})" if self.target else self.name

    def reset(self) -> "TowerProgress":
        return TowerProgress(name=self.name, target=self.target)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages that the tower goes through; optional ones count once they have started."""
        started = {self.stage, *self.stage_seconds}
        return tuple(stage for stage in Stage if stage not in _OPTIONAL_STAGES or stage in started)

    def stop_running(self) -> Self:
        """Return this tower without a running stage, for a job that no worker runs."""
        if self.state is not TowerState.RUNNING:
            return self
        return self.model_copy(update={"state": TowerState.WAITING, "detail": ""})

    def cancel(self) -> Self:
        """Return this tower as cancelled; a tower that has ended does not change."""
        if self.state in (TowerState.SUCCEEDED, TowerState.FAILED):
            return self
        return self.model_copy(update={"state": TowerState.CANCELLED, "detail": ""})

    def fail(self, failure: Failure) -> Self:
        """Return this tower as failed, unless it succeeded; a failure of its own stays."""
        if self.state is TowerState.SUCCEEDED or self.failure is not None:
            return self
        return self.model_copy(update={"state": TowerState.FAILED, "failure": failure})


class Lease(Frozen):
    """A worker's right to a job until a time."""

    worker: str  # the worker of the latest attempt
    until: datetime
    # Another worker, which closes the job without an attempt. Left out if there is none, because older
    # programs do not know the field.
    closer: str | None = Field(default=None, exclude_if=lambda closer: closer is None)


class Job(JobOptions):
    """One accepted export."""

    version: Literal[1, 2, 3] = 3  # layout (see jobs.stores.record); before 3 the spec held the config's text
    revision: int = 1  # increases by one with every change
    id: JobId
    spec: JobSpec  # with the digest of the pipeline config as it was when submitted
    config_uri: str | None = None  # source of that config
    family: str | None = None  # kind of model, as planned; None: of a version that did not keep it
    owner: str = ANYONE  # the caller whose quotas it counts against
    uris: UriRules = NO_RULES  # of the key behind it when it was submitted; attempts judge by them again
    running_limit: int | None = None  # most jobs of the owner that may run at a time
    retry_of: JobId | None = None  # the finished job whose failed towers this one runs
    content_key: str | None = None  # equal for jobs that would make the same artifact
    traceparent: str | None = None  # of the request that submitted it, if that is traced
    state: JobState = JobState.QUEUED
    towers: tuple[TowerProgress, ...]
    attempt: int = 0  # number of attempts started
    setbacks: int = 0  # number of attempts that broke
    abandoned: int = 0  # number of those whose worker stopped renewing its lease
    not_before: datetime | None = None  # start of the next attempt at the earliest, after a setback
    lease: Lease | None = None
    cancel_requested: bool = False
    failure: Failure | None = None
    manifest_uri: str | None = None  # manifest of the first target that was published
    manifest_uris: Mapping[Target, str] = Field(default_factory=dict)  # by target, if there are several
    target: Target | None = None  # target of the latest attempt
    ended_targets: tuple[Target, ...] = ()  # targets that were published or given up
    verdicts: tuple[ReleaseVerdict, ...] = ()  # of the release gate, one for each target that was published
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None  # start of the latest attempt
    finished_at: datetime | None = None

    @property
    def pending_targets(self) -> tuple[Target, ...]:
        """The targets that are still to be exported for."""
        return tuple(target for target in self.spec.targets if target not in self.ended_targets)

    @property
    def pending_routes(self) -> tuple[Route, ...]:
        """The routes to the workers that may take it, one for each target still to be exported for."""
        return tuple(make_route(target, self.spec.torch) for target in self.pending_targets)

    @property
    def busy_routes(self) -> tuple[Route, ...]:
        """The routes under which the job counts: those it waits on, or the one that it runs for."""
        if self.state is JobState.RUNNING:
            return (self.current_route,)
        return self.pending_routes if self.state is JobState.QUEUED else ()

    @property
    def current_route(self) -> Route:
        """The route of the latest attempt."""
        return make_route(self.current_target, self.spec.torch)

    @property
    def current_target(self) -> Target:
        """The target of the latest attempt; records of version 1 have only one."""
        return self.target or self.spec.targets[0]

    @property
    def current_towers(self) -> tuple[TowerProgress, ...]:
        return tuple(tower for tower in self.towers if self.is_current(tower))

    def is_current(self, tower: TowerProgress) -> bool:
        """True if the latest attempt exports this tower."""
        return tower.target in (None, self.current_target)

    @property
    def current_spec(self) -> JobSpec:
        """The spec of the latest attempt: for its target, and in a retry only for the towers that failed."""
        spec = self.spec.for_target(self.current_target)
        names = tuple(tower.name for tower in self.current_towers)
        return spec if set(names) == {tower.name for tower in self.towers} else spec.only(names)

    @property
    def ranks(self) -> int:
        return max(self.spec.ranks or len(self.current_towers), self.hosts)

    @property
    def hosts(self) -> int:
        return self.spec.nodes or 1

    @property
    def blessed(self) -> bool | None:
        """True if what it published may be promoted without force; None if no gate judges it, or not yet."""
        if self.spec.release_gate is None or self.manifest_uri is None or not self.state.is_final:
            return None
        return self.state is JobState.SUCCEEDED and is_blessed(self.verdicts, self.spec.target)

    def move_to(self, state: JobState, now: datetime) -> Self:
        """Return this job in another state, or raise IllegalMove."""
        if state not in MOVES.get(self.state, frozenset()):
            raise IllegalMove(f"a {self.state} job cannot become {state}", where=self.id)
        is_cancelled = state is JobState.CANCELLED
        return self.model_copy(
            update={
                "state": state,
                "lease": None,
                "finished_at": now if state.is_final else None,
                "towers": tuple(
                    tower.cancel() if is_cancelled else tower.stop_running() for tower in self.towers
                ),
            }
        )

    def begin_attempt(self, lease: Lease, target: Target, now: datetime) -> Self:
        """Return this job with a new attempt, in which every tower of the target starts again."""
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
        """Return this job, or raise LeaseLost if `worker`'s attempt no longer holds it."""
        lease = self.lease
        if lease is None or (lease.worker, lease.closer, self.attempt) != (worker, None, attempt):
            raise LeaseLost(f"attempt {attempt} of {worker} no longer holds job {self.id}")
        return self

    def require_closed_by(self, closer: str, attempt: int) -> Self:
        """Return this job, or raise LeaseLost if `closer` may no longer close it after that attempt."""
        if self.lease is None or (self.lease.closer, self.attempt) != (closer, attempt):
            raise LeaseLost(f"{closer} no longer has job {self.id} to end it")
        return self

    def has_expired(self, now: datetime) -> bool:
        return self.lease is not None and self.lease.until < now

    def is_due(self, now: datetime) -> bool:
        """True if its pause is over; a pause also ends if the clock was set back."""
        return self.not_before is None or self.not_before <= now or now < self.updated_at

    def request_cancel(self, now: datetime) -> Self:
        """Cancel a job that was never started; else ask its worker to stop, or the sweep to close it."""
        if self.state.is_final:
            raise JobFinished(f"job {self.id} has already ended: it is {self.state}")
        requested = self.model_copy(update={"cancel_requested": True})
        if self.state is JobState.RUNNING or self.cancel_requested:
            return requested
        return requested.await_closing(now) if self.attempt else requested.move_to(JobState.CANCELLED, now)

    def await_closing(self, now: datetime) -> Self:
        """Return this job, queued only so that a worker adopts or removes its attempts' files and ends it.

        Its lease belongs to nobody and has expired already, so that the sweep finds it.
        """
        return self.model_copy(update={"lease": Lease(worker=NOBODY, until=now)})

    def towers_to_retry(self) -> tuple[TowerProgress, ...]:
        """Return the failed towers of a finished job; JobNotRetryable if there are none."""
        failed = tuple(tower for tower in self.towers if tower.state is TowerState.FAILED)
        if not self.state.is_final or not failed:
            raise JobNotRetryable(
                f"job {self.id} has {self.state}: there is no failed tower to run again",
                hint="only a job that has failed, wholly or in part, can be retried",
            )
        return failed

    def require_removable(self) -> Self:
        """Return this job, or raise JobNotFinished while it may still run."""
        if not self.state.is_final:
            raise JobNotFinished(
                f"job {self.id} is {self.state}", hint="cancel the job, and delete it once it has ended"
            )
        return self

    def hand_back(self, now: datetime) -> Self:
        """Return this job queued again without a setback; to be closed if it was cancelled meanwhile."""
        queued = self.move_to(JobState.QUEUED, now)
        return queued.await_closing(now) if self.cancel_requested else queued

    def set_back(self, failure: Failure, now: datetime, pause: timedelta = timedelta(0)) -> Self:
        """Return this job queued again after its attempt broke, or failed if another attempt cannot help.

        The next attempt starts after `pause`, four times as long after every further setback, so that the
        cause has time to disappear.
        """
        counted = self.model_copy(update={"setbacks": self.setbacks + 1, "failure": failure})
        if self.cancel_requested:
            return counted.hand_back(now)
        if not failure.retryable or counted.setbacks >= MAX_SETBACKS:
            return counted.fail(failure, now)
        due = now + pause * 4**self.setbacks if pause else None
        return counted.hand_back(now).model_copy(update={"not_before": due})

    def abandon(self, failure: Failure, now: datetime) -> Self:
        """Return this job set back after its worker stopped renewing; failed if that is the second worker."""
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
        """Return this job after the latest attempt's target: queued for the next target, or ended."""
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

"""Claim a job, renew its lease, and release it; changes are refused once another attempt holds the job."""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from exporter.errors import AttemptFailed
from exporter.outcome import ExportOutcome, Failure
from exporter.spec import CPU_TARGETS
from exporter.stages import StageEvent
from jobs.errors import IllegalMove, JobNotFound, QuotaExceeded, RecordUnreadable
from jobs.ids import JobId
from jobs.model import Job, JobState, Lease
from jobs.progress import finish, fold_events
from jobs.route import Route, split_route
from jobs.stores.job_store import JobRecords, JobStore


def update_job(store: JobRecords, job_id: JobId, change: Callable[[Job, datetime], Job]) -> Job:
    """Apply a pure change to the stored job; apply it again if another program changed the job meanwhile."""
    while True:
        old, now = store.get(job_id), store.now()
        new = change(old, now)
        if new == old:
            return old
        new = new.model_copy(update={"revision": old.revision + 1, "updated_at": now})
        if store.replace(old, new):
            return new


@dataclass(frozen=True)
class Renewal:
    """The job right after its lease was renewed."""

    job: Job
    remaining: timedelta  # time left of the lease when the store was asked


@dataclass(frozen=True, kw_only=True)
class Holding:
    """One worker's attempt at one job; methods raise LeaseLost once another worker holds the job."""

    store: JobRecords
    job: Job  # as it was when claimed
    worker: str
    length: timedelta  # length of the lease from each renewal
    pause: timedelta = timedelta(0)  # before the next attempt, if this one breaks

    def read_config(self) -> str:
        """Return the text of the job's config, which the attempt needs."""
        return self.store.config_of(self.job)

    def renew(self, events: Iterable[StageEvent] = ()) -> Renewal:
        """Renew the lease, and save the events that the ranks reported."""
        looked_at = self.job.created_at

        def renew_and_fold(job: Job, now: datetime) -> Job:
            nonlocal looked_at
            looked_at = now
            return fold_events(self._renew_if_due(job, now), events)

        job = self._change(renew_and_fold)
        return Renewal(job, job.lease.until - looked_at if job.lease else timedelta(0))

    def finish(self, outcome: ExportOutcome) -> Job:
        """Record the outcome of the export."""
        return self._change(lambda job, now: finish(job, outcome, now, self.pause))

    def set_back(self, failure: Failure) -> Job:
        """Record an attempt that ended without an outcome."""
        return self._change(lambda job, now: job.set_back(failure, now, self.pause))

    def hand_back(self) -> Job:
        """Return the job to the queue, because this worker is stopping."""
        return self._change(lambda job, now: job.hand_back(now))

    def cancel(self) -> Job:
        """Record that the job is cancelled; the attempt's processes have ended."""
        return self._change(lambda job, now: job.move_to(JobState.CANCELLED, now))

    def _change(self, change: Callable[[Job, datetime], Job]) -> Job:
        return update_job(
            self.store,
            self.job.id,
            lambda job, now: change(job.require_held_by(self.worker, self.job.attempt), now),
        )

    def _renew_if_due(self, job: Job, now: datetime) -> Job:
        """Renew in the lease's second third, so that the record does not change more often than necessary.

        A lease with more time left than its length is renewed too: the store's clock was set back.
        """
        if job.lease is None or self.length * 2 / 3 < job.lease.until - now <= self.length:
            return job
        return job.model_copy(update={"lease": Lease(worker=self.worker, until=now + self.length)})


class JoinedAttempt(Holding):
    """A worker's part in another worker's attempt: it saves events, but renews nothing."""

    def _renew_if_due(self, job: Job, now: datetime) -> Job:
        return job


def join_attempt(store: JobStore, job_id: JobId, attempt: int, length: timedelta) -> JoinedAttempt | None:
    """Return a part in a running attempt; None if it no longer runs."""
    try:
        job = store.get(job_id)
    except (JobNotFound, RecordUnreadable):
        return None
    if job.state is not JobState.RUNNING or job.lease is None or job.attempt != attempt:
        return None
    return JoinedAttempt(store=store, job=job, worker=job.lease.worker, length=length)


def claim(
    store: JobRecords,
    job_id: JobId,
    *,
    worker: str,
    length: timedelta,
    serves: Collection[Route] = CPU_TARGETS,
    pause: timedelta = timedelta(0),
    may_expire: Callable[[datetime], bool] = lambda now: True,
) -> Holding | None:
    """Claim a queued or expired job, on the first of its routes that this worker serves.

    Return None, and leave the job as it is, when another worker holds it, when it has ended, when it waits
    for others only, when its pause is not over, when it is too early to say that its worker is gone
    (`may_expire`), when its owner has as many running jobs as it may, or when it is to be closed (see
    `orphans`). The sweep offers it again later. If this attempt breaks, the next one begins after `pause`.
    """

    def take(job: Job, now: datetime) -> Job:
        if job.cancel_requested:  # the sweep cancels it, or the worker that holds it
            raise IllegalMove("it is being cancelled", where=job.id)
        if job.has_expired(now):
            left, job = job, abandon_job(job, now)
            if not may_expire(now) or ends_target(left, job):
                raise IllegalMove("the sweep will release or close it", where=job.id)
        if not job.is_due(now):
            raise IllegalMove(f"its next attempt begins at {job.not_before}", where=job.id)
        route = next((each for each in job.pending_routes if each in serves), None)
        if route is None:
            raise IllegalMove(f"worker {worker} serves none of {', '.join(job.pending_routes)}", where=job.id)
        return job.begin_attempt(Lease(worker=worker, until=now + length), split_route(route)[0], now)

    try:
        job = update_job(store, job_id, take)
    except (IllegalMove, JobNotFound, QuotaExceeded, RecordUnreadable):
        return None
    return Holding(store=store, job=job, worker=worker, length=length, pause=pause)


def release_expired(store: JobStore, ended: Mapping[JobId, datetime]) -> tuple[Job, ...]:
    """Take jobs from workers whose leases expired at the times in `ended`; return those queued again.

    A job that has no further attempt stays as it is, to be closed (see jobs.lease.orphans).
    """

    def release(job: Job, now: datetime) -> Job:
        if job.state is not JobState.RUNNING or job.lease is None or job.lease.until != ended[job.id]:
            return job
        released = abandon_job(job, now)
        return job if ends_target(job, released) else released

    released = []
    for job_id in ended:
        with suppress(RecordUnreadable, JobNotFound):  # a newer worker's sweep will release a newer record
            released.append(update_job(store, job_id, release))
    return tuple(job for job in released if job.state is JobState.QUEUED and not job.cancel_requested)


def ends_target(before: Job, after: Job) -> bool:
    """True if no further attempt for the current target follows the step from `before` to `after`."""
    return after.state.is_final or after.ended_targets != before.ended_targets


def abandon_job(job: Job, now: datetime) -> Job:
    """Return the job after its worker stopped renewing the lease."""
    worker = job.lease.worker if job.lease else "unknown"
    error = AttemptFailed(
        f"worker {worker} stopped renewing its lease during attempt {job.attempt}",
        hint="the worker died or could not reach the job store; see its log",
    )
    return job.abandon(Failure.of(error), now)

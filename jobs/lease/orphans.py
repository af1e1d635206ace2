"""Close jobs that nobody works on any more, once the files of their attempts are dealt with.

Such a job was abandoned by its last worker, or cancelled while queued between two attempts. Whoever closes it
first takes a lease of its own, so that no attempt can start meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from exporter.outcome import ExportOutcome, Failure
from exporter.spec import Target, TowerName
from jobs.errors import IllegalMove, JobNotFound, RecordUnreadable
from jobs.ids import JobId
from jobs.lease.leases import abandon_job, ends_target, update_job
from jobs.model import NOBODY, Job, JobState, Lease
from jobs.progress import finish
from jobs.stores.job_store import JobStore


@dataclass(frozen=True, kw_only=True)
class OrphanedJob:
    """One worker's right to close a job; methods raise LeaseLost once another worker has that right."""

    store: JobStore
    job: Job  # as it was before it was taken
    worker: str
    length: timedelta  # length of the lease from each renewal

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets for which attempts may have left files that no other attempt will remove."""
        return self.job.pending_targets if self.job.state is JobState.QUEUED else (self.job.current_target,)

    def towers(self, target: Target) -> tuple[TowerName, ...]:
        return tuple(tower.name for tower in self.job.towers if tower.target in (None, target))

    def renew(self) -> timedelta:
        """Renew the lease; return its length."""
        self._change(lambda job, now: _hold_for_closing(job, self.worker, now + self.length))
        return self.length

    def adopt(self, target: Target, outcome: ExportOutcome) -> Job:
        """Record the artifact that an attempt had published for a target."""

        def record_outcome(job: Job, now: datetime) -> Job:
            running = job if job.state is JobState.RUNNING else job.move_to(JobState.RUNNING, now)
            adopted_target = target if job.spec.target else None
            return finish(running.model_copy(update={"target": adopted_target}), outcome, now)

        return self._change(record_outcome)

    def end(self, refused: Failure | None = None) -> Job:
        """End the job without an artifact: cancelled if that was requested, else failed.

        It failed because of `refused`, the failure to adopt what was published, or because its worker
        stopped.
        """
        if self.job.state is JobState.QUEUED:
            return self._change(lambda job, now: job.move_to(JobState.CANCELLED, now))
        if refused is not None:
            return self._change(lambda job, now: job.fail(refused, now))
        return self._change(abandon_job)

    def _change(self, change: Callable[[Job, datetime], Job]) -> Job:
        return update_job(
            self.store,
            self.job.id,
            lambda job, now: change(job.require_closed_by(self.worker, self.job.attempt), now),
        )


def take_orphan(
    store: JobStore, job_id: JobId, ended: datetime, *, worker: str, length: timedelta
) -> OrphanedJob | None:
    """Take a job to close it, if its lease still ends at `ended`; else return None."""
    found: list[Job] = []

    def take(job: Job, now: datetime) -> Job:
        if job.lease is None or job.lease.until != ended or not _has_no_next_attempt(job, now):
            raise IllegalMove("a worker holds it, or another attempt will", where=job_id)
        found[:] = [job]
        return _hold_for_closing(job, worker, now + length)

    try:
        update_job(store, job_id, take)
    except (IllegalMove, JobNotFound, RecordUnreadable):
        return None
    return OrphanedJob(store=store, job=found[0], worker=worker, length=length)


def _has_no_next_attempt(job: Job, now: datetime) -> bool:
    """True if no attempt will follow."""
    if job.state is JobState.QUEUED:
        return job.cancel_requested
    return job.state is JobState.RUNNING and ends_target(job, abandon_job(job, now))


def _hold_for_closing(job: Job, closer: str, until: datetime) -> Job:
    """Return the job with `closer`'s lease, which still names the worker of the last attempt."""
    worker = job.lease.worker if job.lease else NOBODY
    return job.model_copy(update={"lease": Lease(worker=worker, until=until, closer=closer)})

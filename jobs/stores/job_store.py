"""The interfaces of the job store: compare-and-set on whole records, on which leases and moves are built."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from jobs.ids import JobId
from jobs.model import Job, JobState
from jobs.queue import Message
from jobs.route import Route


@dataclass(frozen=True)
class JobPage:
    """Jobs, newest first; `next` continues after the last of them, None at the end."""

    jobs: tuple[Job, ...]
    next: JobId | None


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """A job that is ready to be stored; the fields are those of `JobRecords.add`."""

    job: Job
    config: str | None
    max_queued: int | None = None
    max_config_bytes: int | None = None
    unless_made: bool = False


class JobRecords(Protocol):
    """Stores jobs, and finds them by id, and by state in order of age: as much as operations on jobs need."""

    def now(self) -> datetime:
        """Return the time of the one clock by which all programs judge leases."""
        ...

    def add(
        self,
        job: Job,
        config: str | None,
        *,
        max_queued: int | None = None,
        max_config_bytes: int | None = None,
        messages: Sequence[Message] = (),
        unless_made: bool = False,
    ) -> JobId | None:
        """Store a new job; return None, or the id of the job that is there instead, and change nothing.

        That is one with the same id; with `unless_made` also the latest successful one with the same content
        key, which may have been removed since.

        `config` is the text of its config. Jobs with equal configs share one text; None shares the text that
        another job has brought, and raises ConfigNotFound if there is none. QuotaExceeded if the job's owner
        has `max_queued` queued jobs already; ConfigsTooLarge if the configs of the owner's jobs, equal ones
        counted once, would take more than `max_config_bytes`. In the same step the messages are sent; the job
        stays without one where that fails, and the workers' sweep finds it.
        """
        ...

    def get(self, job_id: JobId) -> Job:
        """Return the job, without the text of its config.

        Raises:
            JobNotFound: there is none.
            RecordUnreadable: its record is damaged, or of a newer program.
        """
        ...

    def config_of(self, job: Job) -> str:
        """Return the text of the job's config.

        Raises:
            JobNotFound: the job has been removed.
            ConfigNotFound: the store has lost the text.
        """
        ...

    def replace(self, old: Job, new: Job) -> bool:
        """Replace `old` by `new`; return False if the stored revision is no longer `old`'s.

        This is the only way a record changes. In the same step its events (see jobs.events) enter the outbox,
        and a successful job becomes the one that its content key finds and the latest of its model.
        QuotaExceeded if it would start to run while its owner has `running_limit` running jobs.
        """
        ...

    def remove(self, job: Job) -> bool:
        """Remove a job, and its config with the last job that uses it.

        Return False if the stored revision is no longer `job`'s.
        """
        ...

    def revision(self, job_id: JobId) -> int:
        """Return the job's revision without reading its record; JobNotFound if there is none."""
        ...

    def page(
        self,
        *,
        limit: int,
        state: JobState | None = None,
        before: JobId | None = None,
        skip: Container[JobId] = (),
    ) -> JobPage:
        """Return up to `limit` jobs older than `before`, in one state or in any.

        Jobs to skip count as returned, but are not read.

        There are fewer, and a `next`, where records are large; unreadable records are left out.
        """
        ...


class JobTotals(Protocol):
    """Figures about all jobs, whoever may see them."""

    def now(self) -> datetime: ...

    def count(self, state: JobState) -> int: ...

    def count_by_route(self, state: JobState) -> Mapping[Route, int]:
        """Count the jobs in a state by each route they wait on, or the one they run for.

        A job that waits for two targets counts in both.
        """
        ...

    def oldest(self, state: JobState) -> Job | None:
        """Return the readable job in a state that was created first; None if there is none."""
        ...


class JobStore(JobRecords, JobTotals, Protocol):
    """Stores all jobs, and finds them also by the end of their lease."""

    def leases(self) -> Mapping[JobId, datetime]:
        """Return the jobs that have a lease, each with the lease's end."""
        ...

"""Where jobs are kept: compare-and-set on whole records. Leases and moves are built on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from exporter.spec import Target
from jobs.ids import JobId
from jobs.model import Job, JobState


@dataclass(frozen=True)
class Page:
    """Jobs, newest first; `next` continues after the last of them, None at the end."""

    jobs: tuple[Job, ...]
    next: JobId | None


class JobStore(Protocol):
    """Jobs by id, by state in order of age, and by the end of their lease."""

    def now(self) -> datetime:
        """The one clock by which all programs judge leases."""
        ...

    def add(self, job: Job, *, max_queued: int | None = None) -> bool:
        """Keep a new job; False, and nothing done, when there is one with its id.

        QuotaExceeded when its owner has `max_queued` queued ones already.
        """
        ...

    def get(self, job_id: JobId) -> Job:
        """The job, or JobNotFound."""
        ...

    def replace(self, old: Job, new: Job) -> bool:
        """Put `new` in place of `old`; False when the stored revision is no longer `old`'s.

        The one place where a record changes. In the same step its news (see jobs.events) go to the outbox,
        a successful job becomes the one its content key finds and the latest of its model. QuotaExceeded
        when it would begin to run and its owner has `running_limit` running ones.
        """
        ...

    def remove(self, job: Job) -> bool:
        """Forget a job; False when the stored revision is no longer `job`'s."""
        ...

    def revision(self, job_id: JobId) -> int:
        """The job's revision, without reading its record; JobNotFound."""
        ...

    def count(self, state: JobState) -> int: ...

    def count_by_target(self, state: JobState) -> Mapping[Target, int]:
        """The jobs in a state by what they wait for, or run for; one that waits for two counts in both."""
        ...

    def oldest(self, state: JobState) -> Job | None:
        """The job in a state that was made first."""
        ...

    def find_content(self, key: str) -> JobId | None:
        """The latest successful job with this content key; it may have been removed since."""
        ...

    def page(self, *, limit: int, state: JobState | None = None, before: JobId | None = None) -> Page:
        """Up to `limit` jobs older than `before`, in one state or in any."""
        ...

    def leases(self) -> Mapping[JobId, datetime]:
        """The jobs that have a lease, each with its end."""
        ...

"""A job store in this process's memory, for tests."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

from jobs.errors import JobNotFound
from jobs.ids import JobId
from jobs.model import Job, JobState
from jobs.store import Page


def utc_now() -> datetime:
    return datetime.now(UTC)


class MemoryJobStore:
    """Jobs in a dict."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        """Take the clock, so that a test can turn it."""
        self._now = now
        self._jobs: dict[JobId, Job] = {}
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._now()

    def add(self, job: Job) -> bool:
        with self._lock:
            return self._jobs.setdefault(job.id, job) is job

    def get(self, job_id: JobId) -> Job:
        if job_id not in self._jobs:
            raise JobNotFound(job_id)
        return self._jobs[job_id]

    def replace(self, old: Job, new: Job) -> bool:
        with self._lock:
            if self.get(old.id).revision != old.revision:
                return False
            self._jobs[old.id] = new
            return True

    def page(self, *, limit: int, state: JobState | None = None, before: JobId | None = None) -> Page:
        jobs = [
            self._jobs[job_id]
            for job_id in sorted(self._jobs, reverse=True)
            if (before is None or job_id < before) and state in (None, self._jobs[job_id].state)
        ]
        more = len(jobs) > limit
        return Page(tuple(jobs[:limit]), jobs[limit - 1].id if more else None)

    def expired(self) -> tuple[JobId, ...]:
        return tuple(job.id for job in self._jobs.values() if job.has_expired(self.now()))

"""A job store in memory, for tests."""

import threading
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import UTC, datetime

from jobs.errors import ConfigNotFound, ConfigsTooLarge, JobNotFound, QuotaExceeded
from jobs.ids import JobId
from jobs.model import Job, JobState
from jobs.queue import Message
from jobs.route import Route
from jobs.stores.job_store import JobPage


def utc_now() -> datetime:
    return datetime.now(UTC)


class MemoryJobStore:
    """Jobs in a dict."""

    def __init__(self, now: Callable[[], datetime] = utc_now) -> None:
        """Use the clock `now`, so that a test can set it."""
        self._now = now
        self._jobs: dict[JobId, Job] = {}
        self._configs: dict[str, str] = {}  # by digest
        self._content: dict[str, JobId] = {}
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._now()

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
        assert not messages, "messages of a queue in Redis"
        with self._lock:
            if unless_made and job.content_key in self._content:
                return self._content[job.content_key]
            if job.id in self._jobs:
                return job.id
            if max_queued is not None and self._count_owned(job.owner, JobState.QUEUED) >= max_queued:
                raise QuotaExceeded(job.owner, max_queued, JobState.QUEUED)
            digest, size = job.spec.config_sha256, job.spec.config_bytes
            if config is None and digest not in self._configs:
                raise ConfigNotFound(job.id, digest)
            owned = {each.spec.config_sha256: each.spec.config_bytes for each in self._owned(job.owner)}
            total = sum((owned | {digest: size}).values())
            if max_config_bytes is not None and digest not in owned and total > max_config_bytes:
                raise ConfigsTooLarge(job.owner, size, max_config_bytes)
            if config is not None:
                self._configs.setdefault(digest, config)
            self._jobs[job.id] = job
            return None

    def get(self, job_id: JobId) -> Job:
        if job_id not in self._jobs:
            raise JobNotFound(job_id)
        return self._jobs[job_id]

    def config_of(self, job: Job) -> str:
        with self._lock:
            self.get(job.id)
            return self._configs[job.spec.config_sha256]

    def replace(self, old: Job, new: Job) -> bool:
        with self._lock:
            if self.get(old.id).revision != old.revision:
                return False
            limit = new.running_limit
            begins = new.state is JobState.RUNNING and old.state is not JobState.RUNNING
            if begins and limit is not None and self._count_owned(new.owner, JobState.RUNNING) >= limit:
                raise QuotaExceeded(new.owner, limit, JobState.RUNNING)
            self._jobs[old.id] = new
            if new.state is JobState.SUCCEEDED and new.content_key is not None:
                self._content[new.content_key] = new.id
            return True

    def remove(self, job: Job) -> bool:
        with self._lock:
            if self.get(job.id).revision != job.revision:
                return False
            del self._jobs[job.id]
            digest = job.spec.config_sha256
            if all(each.spec.config_sha256 != digest for each in self._jobs.values()):
                del self._configs[digest]
            return True

    def revision(self, job_id: JobId) -> int:
        return self.get(job_id).revision

    def count(self, state: JobState) -> int:
        return sum(job.state is state for job in self._jobs.values())

    def count_by_route(self, state: JobState) -> Mapping[Route, int]:
        return Counter(each for job in self._jobs.values() if job.state is state for each in job.busy_routes)

    def oldest(self, state: JobState) -> Job | None:
        return min((job for job in self._jobs.values() if job.state is state), key=_id, default=None)

    def _count_owned(self, owner: str, state: JobState) -> int:
        return sum(job.state is state for job in self._owned(owner))

    def _owned(self, owner: str) -> list[Job]:
        return [job for job in self._jobs.values() if job.owner == owner]

    def page(
        self,
        *,
        limit: int,
        state: JobState | None = None,
        before: JobId | None = None,
        skip: Container[JobId] = (),
    ) -> JobPage:
        jobs = [
            self._jobs[job_id]
            for job_id in sorted(self._jobs, reverse=True)
            if (before is None or job_id < before) and state in (None, self._jobs[job_id].state)
        ]
        more = len(jobs) > limit
        shown = tuple(job for job in jobs[:limit] if job.id not in skip)
        return JobPage(shown, jobs[limit - 1].id if more else None)

    def leases(self) -> Mapping[JobId, datetime]:
        return {job.id: job.lease.until for job in self._jobs.values() if job.lease is not None}


def _id(job: Job) -> JobId:
    return job.id

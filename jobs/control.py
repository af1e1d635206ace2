"""What callers can do with jobs: submit, look, list, cancel."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from exporter.spec import ExportSpec, TowerName
from jobs.errors import JobNotFound
from jobs.ids import JobId, is_job_id, new_job_id
from jobs.leases import update
from jobs.model import Job, JobState, TowerProgress
from jobs.queue import JobQueue, enqueue_if_possible
from jobs.store import JobStore, Page

_SCAN = 200  # queued jobs looked at together


@dataclass(frozen=True)
class Plan:
    """What a spec comes to before anything runs."""

    spec: ExportSpec  # pinned: with the config's text, as it was read
    towers: tuple[TowerName, ...]


class Planner(Protocol):
    """Reads and checks a spec's pipeline config; raises what is wrong with it."""

    def __call__(self, spec: ExportSpec) -> Plan: ...


@dataclass(frozen=True)
class JobControl:
    """The jobs, as the routes call them."""

    store: JobStore
    queue: JobQueue
    plan: Planner

    def submit(self, spec: ExportSpec) -> Job:
        """Accept an export. The job keeps the config's text: a later change of the file does not reach it."""
        plan = self.plan(spec)
        now = self.store.now()
        job = Job(
            id=new_job_id(),
            spec=plan.spec,
            config_uri=spec.config_uri,
            towers=tuple(TowerProgress(name=name) for name in plan.towers),
            created_at=now,
            updated_at=now,
        )
        self.store.add(job)
        enqueue_if_possible(self.queue, job.id)
        return job

    def get(self, job_id: str) -> Job:
        return self.store.get(_known(job_id))

    def page(self, *, limit: int, state: JobState | None, before: str | None) -> Page:
        """Jobs, newest first; `before` is a page's `next`."""
        return self.store.page(limit=limit, state=state, before=JobId(before) if before else None)

    def cancel(self, job_id: str) -> Job:
        """Cancel a queued job; ask the worker of a running one to stop it."""
        return update(self.store, _known(job_id), lambda job, now: job.cancelled(now))


def _known(job_id: str) -> JobId:
    if not is_job_id(job_id):
        raise JobNotFound(job_id)
    return JobId(job_id)


def enqueue_lost(store: JobStore, queue: JobQueue) -> tuple[JobId, ...]:
    """Enqueue again the queued jobs that no message names; running twice is harmless, waiting is not."""
    queued = tuple(_queued(store))
    undelivered = queue.undelivered()
    lost = tuple(job_id for job_id in queued if job_id not in undelivered)
    for job_id in lost:
        queue.enqueue(job_id)
    return lost


def _queued(store: JobStore) -> Iterator[JobId]:
    before: JobId | None = None
    while True:
        page = store.page(limit=_SCAN, state=JobState.QUEUED, before=before)
        yield from (job.id for job in page.jobs)
        before = page.next
        if before is None:
            return

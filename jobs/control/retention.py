"""Remove the records of jobs that ended long ago; artifacts are never touched."""

from collections.abc import Iterator
from datetime import datetime, timedelta

from jobs.control.releases import ReleasePointers
from jobs.errors import JobNotFound, RecordUnreadable
from jobs.ids import JobId, first_id_at
from jobs.model import Job, JobState
from jobs.stores.job_store import JobStore

_PAGE = 200


def forget_old_jobs(store: JobStore, pointers: ReleasePointers, keep: timedelta) -> tuple[JobId, ...]:
    """Remove the records of jobs that ended longer than `keep` ago, and return their ids.

    The latest release of every model stays, with the jobs that it retries, because their records name its
    packages. The promoted release has a record of its own, but its job says who may see it, and stays too.
    """
    ended_before = store.now() - keep
    forgotten = []
    for job in _list_ended(store, ended_before):
        ended = job.finished_at is not None and job.finished_at < ended_before
        if ended and not _is_needed(job, store, pointers) and store.remove(job):
            forgotten.append(job.id)
    return tuple(forgotten)


def _list_ended(store: JobStore, made_before: datetime) -> Iterator[Job]:
    """Yield ended jobs that were created before a time; they may have ended later."""
    for state in JobState:
        before: JobId | None = first_id_at(made_before)
        while state.is_final and before is not None:
            page = store.page(limit=_PAGE, state=state, before=before)
            yield from page.jobs
            before = page.next


def _is_needed(job: Job, store: JobStore, pointers: ReleasePointers) -> bool:
    if job.model is None:
        return False
    promoted = pointers.get_promoted(job.model)
    if promoted is not None and promoted.job_id == job.id:
        return True
    return job.id in _chain(pointers.jobs(job.model)[:1], store)


def _chain(latest: tuple[JobId, ...], store: JobStore) -> set[JobId]:
    """Return the job of the latest release and those that it retries."""
    chain: set[JobId] = set()
    at = next(iter(latest), None)
    while at is not None:
        chain.add(at)
        try:
            at = store.get(at).retry_of
        except (JobNotFound, RecordUnreadable):
            break
    return chain

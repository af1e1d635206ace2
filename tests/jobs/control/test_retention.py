"""Old jobs are removed, except those that a release needs."""

from datetime import timedelta

import pytest

from jobs.control.promotions import PromotionKind, PromotionNote
from jobs.control.releases import MemoryPointers, Release
from jobs.control.retention import forget_old_jobs
from jobs.ids import JobId, first_id_at
from jobs.model import Job, JobState
from jobs.stores.job_store import JobStore
from tests.jobs.factories import CONFIG_TEXT, NOW, make_job

KEEP = timedelta(days=30)


def job_of(store: JobStore, state: JobState, *, age: timedelta, **changes: object) -> Job:
    """A stored job that was created, and perhaps ended, this long ago."""
    when = store.now() - age
    number = str(sum(1 for _ in store.page(limit=100).jobs))
    job_id = JobId(first_id_at(when)[:-1] + number)
    ended = when if state.is_final else None
    job = make_job(state, job_id=job_id).model_copy(update={"finished_at": ended, **changes})
    assert store.add(job, CONFIG_TEXT) is None
    return job


@pytest.mark.parametrize("state", [state for state in JobState if state.is_final])
def test_a_job_that_ended_long_ago_is_forgotten(store: JobStore, state: JobState) -> None:
    old = job_of(store, state, age=2 * KEEP)
    job_of(store, state, age=KEEP / 2)
    assert forget_old_jobs(store, MemoryPointers(), KEEP) == (old.id,)
    assert len(store.page(limit=10).jobs) == 1


def test_a_job_that_may_still_run_is_kept_however_old(store: JobStore) -> None:
    for state in (JobState.QUEUED, JobState.RUNNING):
        job_of(store, state, age=2 * KEEP)
    assert forget_old_jobs(store, MemoryPointers(), KEEP) == ()


def test_a_job_that_was_made_long_ago_and_ended_lately_is_kept(store: JobStore) -> None:
    job_of(store, JobState.FAILED, age=2 * KEEP, finished_at=store.now())
    assert forget_old_jobs(store, MemoryPointers(), KEEP) == ()


def test_the_latest_release_and_what_it_completes_are_kept(store: JobStore) -> None:
    pointers = MemoryPointers()
    older = job_of(store, JobState.SUCCEEDED, age=4 * KEEP, model="m")
    part = job_of(store, JobState.PARTIALLY_SUCCEEDED, age=3 * KEEP, model="m")
    latest = job_of(store, JobState.SUCCEEDED, age=2 * KEEP, model="m", retry_of=part.id)
    pointers.released["m"] = [older.id, latest.id]
    assert forget_old_jobs(store, pointers, KEEP) == (older.id,)


def test_the_job_of_the_promoted_release_is_kept_because_it_says_who_may_see_it(store: JobStore) -> None:
    pointers = MemoryPointers()
    jobs = [job_of(store, JobState.SUCCEEDED, age=age * KEEP, model="m") for age in (4, 3, 2)]
    pointers.released["m"] = [job.id for job in jobs]
    noted = PromotionNote(at=NOW, by="x", kind=PromotionKind.PROMOTE, job_id=jobs[1].id)
    pointers.promote(Release(model="m", job_id=jobs[1].id, finished_at=None, labels={}, towers=()), noted)
    assert forget_old_jobs(store, pointers, KEEP) == (jobs[0].id,)

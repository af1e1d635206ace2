"""The contract of every job store, tested on each of them."""

import pytest
import redis

from jobs.errors import JobNotFound, StoreUnavailable
from jobs.ids import JobId, new_job_id
from jobs.model import Job, JobState, Lease
from jobs.stores.job_store import JobStore
from jobs.stores.redis_store import RedisJobStore, connect
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_job


def changed(job: Job, state: JobState, store: JobStore) -> Job:
    return job.move_to(state, store.now()).model_copy(update={"revision": job.revision + 1})


def test_what_was_added_is_found(store: JobStore) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    assert store.get(job.id) == job


def test_an_unknown_job_is_not_found(store: JobStore) -> None:
    with pytest.raises(JobNotFound):
        store.get(new_job_id())


def test_a_change_of_an_old_revision_is_refused(store: JobStore) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    assert store.replace(job, changed(job, JobState.RUNNING, store))
    assert not store.replace(job, changed(job, JobState.CANCELLED, store))
    assert store.get(job.id).state is JobState.RUNNING


def test_a_job_is_not_added_where_another_has_made_the_same(store: JobStore) -> None:
    first = make_job().model_copy(update={"content_key": "same"})
    again = first.model_copy(update={"id": new_job_id()})
    assert store.add(first, CONFIG_TEXT, unless_made=True) is None
    assert store.add(again, CONFIG_TEXT, unless_made=True) is None  # the first has made nothing yet
    for state in (JobState.RUNNING, JobState.SUCCEEDED):
        assert store.replace(first, changed(first, state, store))
        first = store.get(first.id)
    third = first.model_copy(update={"id": new_job_id(), "state": JobState.QUEUED})
    # The job that is there needs no room.
    assert store.add(third, CONFIG_TEXT, max_queued=1, max_config_bytes=0, unless_made=True) == first.id
    assert store.count(JobState.QUEUED) == 1
    other = third.model_copy(update={"content_key": None})
    assert store.add(other, CONFIG_TEXT, unless_made=True) is None
    assert store.add(other, CONFIG_TEXT, unless_made=True) == other.id


def test_pages_are_newest_first_and_end(store: JobStore) -> None:
    ids = [JobId(f"{number:026d}") for number in range(5)]
    for job_id in ids:
        store.add(make_job(job_id=job_id), CONFIG_TEXT)
    first = store.page(limit=3)
    second = store.page(limit=3, before=first.next)
    assert [job.id for job in first.jobs + second.jobs] == ids[::-1]
    assert (first.next, second.next) == (ids[2], None)


def test_a_page_may_show_one_state(store: JobStore) -> None:
    queued, cancelled = make_job(), make_job()
    store.add(queued, CONFIG_TEXT)
    store.add(cancelled, CONFIG_TEXT)
    store.replace(cancelled, changed(cancelled, JobState.CANCELLED, store))
    assert [job.id for job in store.page(limit=9, state=JobState.CANCELLED).jobs] == [cancelled.id]
    assert [job.id for job in store.page(limit=9, state=JobState.QUEUED).jobs] == [queued.id]


def test_leases_are_found_with_their_ends(store: JobStore) -> None:
    ends = {}
    for until in (store.now() - MINUTE, store.now() + MINUTE):
        job = make_job(JobState.QUEUED)
        store.add(job, CONFIG_TEXT)
        held = changed(job, JobState.RUNNING, store).model_copy(
            update={"lease": Lease(worker="w", until=until)}
        )
        store.replace(job, held)
        ends[job.id] = until
    assert store.leases() == ends


def test_a_lease_that_was_given_up_is_no_longer_found(store: JobStore) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    held = changed(job, JobState.RUNNING, store).model_copy(
        update={"lease": Lease(worker="w", until=store.now() - MINUTE)}
    )
    store.replace(job, held)
    store.replace(held, changed(held, JobState.FAILED, store))
    assert store.leases() == {}


def test_a_redis_that_is_away_is_named() -> None:
    store = RedisJobStore(connect("redis://127.0.0.1:1/0"))
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.get(new_job_id())


@pytest.mark.parametrize(
    ("setting", "value", "usual"), [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")]
)
def test_a_redis_that_refuses_is_named(
    redis_client: redis.Redis, setting: str, value: str, usual: str
) -> None:
    redis_client.config_set(setting, value)
    try:
        with pytest.raises(StoreUnavailable, match="refuses"):
            RedisJobStore(redis_client).add(make_job(), CONFIG_TEXT)
    finally:
        redis_client.config_set(setting, usual)


def test_the_config_is_not_rewritten_with_every_change(redis_client: redis.Redis) -> None:
    store, job = RedisJobStore(redis_client), make_job()
    store.add(job, CONFIG_TEXT)
    record = redis_client.hget(f"slipway:job:{job.id}", "record")
    assert isinstance(record, str) and CONFIG_TEXT not in record

"""Configs lie in the store once for all jobs that use them, and are read only by those who ask for them."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import cast

import pytest
import redis

from exporter.spec import ExportSpec, TowerName
from jobs.control.control import JobControl, Plan, enqueue_lost
from jobs.control.redis_releases import RedisPointers
from jobs.control.retention import forget_old_jobs
from jobs.errors import ConfigNotFound, ConfigsTooLarge, JobNotFound
from jobs.lease.leases import claim, update_job
from jobs.model import Job, JobState
from jobs.queue import MemoryQueue
from jobs.spec import JobSpec
from jobs.stores.job_store import JobStore
from jobs.stores.record import write_record
from jobs.stores.redis_keys import JOB_KEY
from jobs.stores.redis_store import RedisJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_failure, make_job, make_spec

LARGE = "x" * 1_000_000


def job_with(config: str, owner: str = "alice") -> Job:
    return make_job().model_copy(update={"spec": JobSpec.of(make_spec(config=config)), "owner": owner})


def plan(spec: ExportSpec) -> Plan:
    return Plan(spec=spec, towers=(TowerName.USER,))


def fail(store: JobStore, job: Job) -> Job:
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    return holding.set_back(make_failure())


def config_keys(client: redis.Redis) -> set[str]:
    return {str(key) for key in client.keys("slipway:config*")}


def keep_with_text(client: redis.Redis, job: Job, config: str) -> None:
    """Leave a stored job as a program of version 2 did, with the text in its spec."""
    spec = json.dumps(job.spec.with_config(config).model_dump(mode="json"))
    record = write_record(job.model_copy(update={"version": 2}))
    client.hset(JOB_KEY + job.id, mapping={"spec": spec, "record": record})
    client.delete(*config_keys(client))


def test_equal_configs_are_stored_once_and_go_with_the_last_job(
    redis_client: redis.Redis,
) -> None:
    store, first, second = RedisJobStore(redis_client), job_with(LARGE), job_with(LARGE, "bob")
    store.add(first, LARGE)
    store.add(second, None)
    assert redis_client.hget(f"slipway:config:{first.spec.config_sha256}", "jobs") == "2"
    assert store.remove(first)
    assert store.config_of(second) == LARGE
    assert store.remove(second)
    assert config_keys(redis_client) == set()


def test_what_lies_beside_the_config_does_not_hold_its_text(redis_client: redis.Redis) -> None:
    store, job = RedisJobStore(redis_client), job_with(LARGE)
    store.add(job, LARGE)
    held = cast("dict[str, str]", redis_client.hgetall(JOB_KEY + job.id))
    assert sum(map(len, held.values())) < 5000
    assert len(store.page(limit=1).jobs[0].model_dump_json()) < 5000


def test_an_id_that_is_taken_counts_no_config_twice(redis_client: redis.Redis) -> None:
    store, job = RedisJobStore(redis_client), job_with(LARGE)
    assert (store.add(job, LARGE), store.add(job, LARGE)) == (None, job.id)
    assert store.remove(job)
    assert config_keys(redis_client) == set()


def test_a_config_that_nobody_brought_is_asked_for(store: JobStore) -> None:
    with pytest.raises(ConfigNotFound):
        store.add(job_with(LARGE), None)
    assert store.page(limit=1).jobs == ()


@pytest.mark.parametrize("config", [LARGE, ""])
def test_the_config_of_a_removed_job_is_not_found(store: JobStore, config: str) -> None:
    job = job_with(config)
    store.add(job, config)
    assert store.remove(job)
    with pytest.raises(JobNotFound):
        store.config_of(job)


@pytest.mark.parametrize("text", ["another", None], ids=["changed", "lost"])
def test_a_config_that_was_damaged_is_not_used(redis_client: redis.Redis, text: str | None) -> None:
    store, job = RedisJobStore(redis_client), job_with(LARGE)
    store.add(job, LARGE)
    key = f"slipway:config:{job.spec.config_sha256}"
    redis_client.delete(key)
    if text is not None:
        redis_client.hset(key, "text", text)
    with pytest.raises(ConfigNotFound):
        store.config_of(job)


def test_an_owner_may_keep_so_many_bytes_of_different_configs(store: JobStore) -> None:
    limit = 2 * len(LARGE)
    for config in (LARGE, LARGE + "\n", LARGE):
        store.add(job_with(config), config, max_config_bytes=limit + 1)
    with pytest.raises(ConfigsTooLarge, match="alice"):
        store.add(job_with("another"), "another", max_config_bytes=limit + 1)
    assert store.add(job_with("another", "bob"), "another", max_config_bytes=limit + 1) is None
    oldest = store.oldest(JobState.QUEUED)
    assert oldest is not None
    removed = [
        each for each in store.page(limit=9).jobs if each.spec == oldest.spec and each.owner == "alice"
    ]
    for job in removed:
        store.remove(job)
    assert len(removed) == 2
    assert store.add(job_with("another"), "another", max_config_bytes=limit + 1) is None


def test_the_bound_holds_for_requests_at_the_same_moment(redis_client: redis.Redis) -> None:
    store = RedisJobStore(redis_client)

    def add(number: int) -> bool:
        config = f"{number:03}" * 100
        try:
            return store.add(job_with(config), config, max_config_bytes=1500) is None
        except ConfigsTooLarge:
            return False

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(add, range(24))) == 5


def test_a_retry_shares_the_config_and_costs_nothing(store: JobStore) -> None:
    control = JobControl(store, MemoryQueue(), plan, max_config_bytes=len(LARGE))
    first = fail(store, control.submit(make_spec(config=LARGE), force=True))
    retried = control.retry(first.id)
    control.remove(first.id)
    assert control.spec_with_config(retried).config == LARGE
    with pytest.raises(ConfigsTooLarge):
        control.submit(make_spec(config="another"))


def test_a_retry_of_a_job_that_is_removed_meanwhile_finds_no_job(store: JobStore) -> None:
    control = JobControl(store, MemoryQueue(), plan)
    first = fail(store, control.submit(make_spec(config=LARGE), force=True))

    def remove_first() -> None:
        control.remove(first.id)

    with pytest.raises(JobNotFound):
        JobControl(store, MemoryQueue(), plan, trace=remove_first).retry(first.id)
    assert store.page(limit=1).jobs == ()


def test_configs_of_an_owner_stay_counted_while_only_an_empty_one_is_left(redis_client: redis.Redis) -> None:
    store, empty, large = RedisJobStore(redis_client), job_with(""), job_with(LARGE)
    store.add(empty, "")
    store.add(large, LARGE)
    store.remove(large)
    store.add(another := job_with(""), "")
    assert redis_client.hget("slipway:configs:alice", empty.spec.config_sha256) == "2"
    store.remove(empty)
    store.remove(another)
    assert config_keys(redis_client) == set()


def test_adding_and_removing_at_the_same_moment_leaves_no_config(redis_client: redis.Redis) -> None:
    store = RedisJobStore(redis_client)

    def come_and_go(_: int) -> None:
        job = job_with(LARGE)
        store.add(job, LARGE)
        assert store.config_of(job) == LARGE
        store.remove(job)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(come_and_go, range(40)))
    assert config_keys(redis_client) == set()


def test_retention_removes_configs_too(redis_client: redis.Redis) -> None:
    store = RedisJobStore(redis_client)
    job = job_with(LARGE)
    store.add(job, LARGE)
    update_job(store, job.id, lambda old, now: old.move_to(JobState.CANCELLED, now - MINUTE))
    assert forget_old_jobs(store, RedisPointers(redis_client), timedelta()) == (job.id,)
    assert config_keys(redis_client) == set()


def test_a_job_of_an_older_program_is_listed_run_retried_and_removed(redis_client: redis.Redis) -> None:
    store = RedisJobStore(redis_client)
    control = JobControl(store, MemoryQueue(), plan, max_config_bytes=len(LARGE))
    old = job_with(LARGE, "anyone")
    store.add(old, LARGE)
    keep_with_text(redis_client, old, LARGE)
    assert [job.spec for job in store.page(limit=1).jobs] == [old.spec]
    assert enqueue_lost(store, MemoryQueue()) == (old.id,)
    failed = fail(store, old)
    assert store.config_of(failed) == LARGE
    assert json.loads(str(redis_client.hget(JOB_KEY + old.id, "record")))["version"] <= 2
    retried = control.retry(old.id)
    control.remove(old.id)
    assert store.config_of(retried) == LARGE
    assert store.remove(retried) and config_keys(redis_client) == set()


def test_a_page_of_large_records_is_short_and_continues(redis_client: redis.Redis) -> None:
    """A spec without its config may have megabytes still: 4,096 names of tables."""
    store = RedisJobStore(redis_client)
    names = {f"{number:04}" + "t" * 500: "int8" for number in range(4096)}
    spec = JobSpec.of(ExportSpec.model_validate({**make_spec().model_dump(), "tables": {"dtypes": names}}))
    for _ in range(6):
        store.add(make_job().model_copy(update={"spec": spec}), CONFIG_TEXT)
    first = store.page(limit=6)
    second = store.page(limit=6, before=first.next)
    assert 0 < len(first.jobs) < 6 and len(first.jobs + second.jobs) == 6
    assert second.next is None

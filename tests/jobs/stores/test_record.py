"""Records of two versions side by side, as in the middle of a rolling upgrade."""

import json
from pathlib import Path

import pytest
import redis

from jobs.control.control import enqueue_lost
from jobs.errors import RecordTooNew
from jobs.ids import JobId, new_job_id
from jobs.lease.leases import claim, release_expired
from jobs.model import Job, JobState
from jobs.queue import MemoryQueue
from jobs.spec import JobSpec
from jobs.stores.record import read_record, write_record, write_spec
from jobs.stores.redis_keys import JOB_KEY
from jobs.stores.redis_store import RedisJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, NOW, make_job, make_outcome

RECORDS = Path(__file__).parent / "records"


@pytest.fixture
def redis_store(redis_client: redis.Redis) -> RedisJobStore:
    return RedisJobStore(redis_client)


def keep_first_version(client: redis.Redis, name: str) -> JobId:
    """Put a record where a program of version 1 left it."""
    kept = json.loads((RECORDS / f"version-1-{name}.json").read_text())
    for key, members in kept["indexes"].items():
        client.zadd(key, members)
    job_id = JobId(kept["id"])
    client.hset(JOB_KEY + job_id, mapping=kept["hash"])
    return job_id


def newer(client: redis.Redis, job: Job) -> None:
    """Turn a stored record into one of a future version."""
    record = json.loads(str(client.hget(JOB_KEY + job.id, "record")))
    client.hset(JOB_KEY + job.id, "record", json.dumps({**record, "version": 99, "invented": True}))


def several() -> Job:
    job = make_job()
    spec = JobSpec.model_validate({**job.spec.model_dump(), "target": ["avx2", "avx512"]})
    towers = tuple(
        tower.model_copy(update={"target": target}) for target in spec.targets for tower in job.towers
    )
    return job.model_copy(update={"spec": spec, "towers": towers})


def kept_by_version_2(job: Job) -> tuple[str, str]:
    """The record and the spec of a job as programs of version 2 left them."""
    spec = json.dumps(job.spec.with_config(CONFIG_TEXT).model_dump(mode="json"))
    return write_record(job.model_copy(update={"version": 2})), spec


def test_a_job_of_version_1_that_asks_for_nothing_new_stays_readable_for_its_programs() -> None:
    first = json.loads((RECORDS / "version-1-queued.json").read_text())
    job = read_record(JobId(first["id"]), first["hash"]["record"], first["hash"]["spec"])
    assert json.loads(write_record(job)).keys() == json.loads(first["hash"]["record"]).keys()
    assert json.loads(write_record(job))["version"] == 1


def test_a_new_job_is_written_as_version_3_and_read_back() -> None:
    job = several()
    assert json.loads(write_record(job))["version"] == 3
    assert read_record(job.id, write_record(job), write_spec(job.spec)) == job


def test_of_a_record_with_the_configs_text_the_digest_is_read() -> None:
    job = several()
    record, spec = kept_by_version_2(job)
    assert json.loads(record)["version"] == 2
    assert read_record(job.id, record, spec) == job.model_copy(update={"version": 2})


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")], ids=["blanks", "as pydantic writes"])
def test_a_record_from_when_towers_said_twice_that_they_are_cold_is_read(separators: tuple[str, str]) -> None:
    job = several()
    text, spec = kept_by_version_2(job)
    record = json.loads(text)
    for tower in record["towers"]:
        tower["cold"] = None
    read = read_record(job.id, json.dumps(record, separators=separators), spec)
    assert read == job.model_copy(update={"version": 2})


@pytest.mark.parametrize("change", [{"version": 4}, {"invented": True}])
def test_a_record_of_a_newer_program_is_not_guessed_at(change: dict[str, object]) -> None:
    job = make_job()
    record = json.loads(write_record(job))
    with pytest.raises(RecordTooNew):
        read_record(job.id, json.dumps({**record, **change}), write_spec(job.spec))


def test_jobs_of_both_versions_run_to_their_end(
    redis_store: RedisJobStore, redis_client: redis.Redis
) -> None:
    """A queued job, one left running by a worker of version 1, and one that only version 2 can hold."""
    ids = [keep_first_version(redis_client, name) for name in ("queued", "running")]
    newest = several()
    redis_store.add(newest, CONFIG_TEXT)
    assert release_expired(redis_store, redis_store.leases())[0].id == ids[1]
    assert enqueue_lost(redis_store, MemoryQueue()) == (newest.id, *sorted(ids, reverse=True))
    for job_id in [*ids, newest.id, newest.id]:  # the newest has two targets
        holding = claim(redis_store, job_id, worker="w2", length=MINUTE, serves=("cpu", "avx2", "avx512"))
        assert holding is not None
        holding.finish(make_outcome())
    assert [redis_store.get(each).state for each in (*ids, newest.id)] == [JobState.SUCCEEDED] * 3


def test_a_family_lies_beside_the_record_where_older_programs_leave_it(
    redis_store: RedisJobStore, redis_client: redis.Redis
) -> None:
    job = make_job().model_copy(update={"family": "dssm"})
    redis_store.add(job, CONFIG_TEXT)
    record, spec = (str(redis_client.hget(JOB_KEY + job.id, name)) for name in ("record", "spec"))
    assert "dssm" not in record + spec
    older = read_record(job.id, record, spec)  # as programs read it that know of no families
    cancelled = older.request_cancel(NOW).model_copy(update={"revision": 2})
    assert redis_store.replace(older, cancelled)
    assert redis_store.get(job.id) == cancelled.model_copy(update={"family": "dssm"})
    assert [each.family for each in redis_store.page(limit=2).jobs] == ["dssm"]


def test_of_an_older_job_only_a_custom_family_is_known(
    redis_store: RedisJobStore, redis_client: redis.Redis
) -> None:
    job = make_job()
    custom = job.model_copy(
        update={"id": new_job_id(), "spec": job.spec.model_copy(update={"family": "mine"})}
    )
    for each in (job, custom):
        redis_store.add(each, CONFIG_TEXT)
    assert [redis_store.get(each.id).family for each in (job, custom)] == [None, "mine"]


def test_the_work_of_programs_of_version_1_is_counted(
    redis_store: RedisJobStore, redis_client: redis.Redis
) -> None:
    for name in ("queued", "running"):
        keep_first_version(redis_client, name)
    assert redis_store.count_by_route(JobState.QUEUED) == {"cpu": 1}
    assert redis_store.count_by_route(JobState.RUNNING) == {"cpu": 1}


def test_a_newer_record_is_left_alone_and_nothing_else_is_held_up(
    redis_store: RedisJobStore, redis_client: redis.Redis
) -> None:
    mine, theirs = make_job(), make_job(job_id=new_job_id())
    for job in (mine, theirs):
        redis_store.add(job, CONFIG_TEXT)
    newer(redis_client, theirs)
    before = redis_client.hgetall(JOB_KEY + theirs.id)
    assert claim(redis_store, theirs.id, worker="w1", length=MINUTE) is None
    assert [job.id for job in redis_store.page(limit=10).jobs] == [mine.id]
    assert enqueue_lost(redis_store, MemoryQueue()) == (mine.id,)
    assert release_expired(redis_store, redis_store.leases()) == ()
    assert redis_client.hgetall(JOB_KEY + theirs.id) == before

"""Records that something else has damaged stop neither a list nor a sweep."""

import json
import random

import pytest
import redis

from exporter.spec import TowerName
from jobs.control.control import enqueue_lost
from jobs.control.idempotency import AnswerKey
from jobs.control.redis_answers import ANSWER_KEY, RedisAnswers
from jobs.control.redis_releases import PROMOTED_KEY, RedisPointers
from jobs.control.retention import forget_old_jobs
from jobs.diagnostics.redis_bundles import BUNDLE_KEY, RedisBundles
from jobs.diagnostics.redis_logs import LOG_KEY, RedisLogs
from jobs.errors import JobNotFound, KeyReused, RecordUnreadable
from jobs.fleet.redis_roster import WORKER_KEY, WORKERS_KEY, RedisRoster
from jobs.fleet.redis_tallies import TALLIES_KEY, RedisTallies
from jobs.ids import JobId, new_job_id
from jobs.lease.leases import claim, release_expired
from jobs.lease.orphans import take_orphan
from jobs.model import Job, JobState
from jobs.queue import MemoryQueue
from jobs.stores.malformed import MALFORMED_KEY
from jobs.stores.redis_keys import INDEX_KEY, JOB_KEY, LEASES_KEY
from jobs.stores.redis_store import RedisJobStore
from tests.hostile.records import RECORDS
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_job


@pytest.fixture
def redis_store(redis_client: redis.Redis) -> RedisJobStore:
    return RedisJobStore(redis_client)


def add(store: RedisJobStore, state: JobState = JobState.QUEUED) -> Job:
    job = make_job(state, job_id=new_job_id())
    store.add(job, CONFIG_TEXT)
    return job


def sweep(store: RedisJobStore, client: redis.Redis) -> tuple[JobId, ...]:
    """Do all that a worker's sweep does; return the jobs that are enqueued again."""
    leases = store.leases()
    release_expired(store, leases)
    for job_id, end in leases.items():
        take_orphan(store, job_id, end, worker="w", length=MINUTE)
    for state in JobState:
        store.count_by_route(state)
    forget_old_jobs(store, RedisPointers(client), MINUTE * 0)
    return enqueue_lost(store, MemoryQueue())


@pytest.mark.parametrize("damage", RECORDS.values(), ids=list(RECORDS))
def test_a_damaged_record_is_passed_over_and_has_an_error_of_its_own(
    redis_store: RedisJobStore, redis_client: redis.Redis, damage: dict[str | bytes, str | bytes]
) -> None:
    damaged, sound = add(redis_store), add(redis_store)
    redis_client.hset(JOB_KEY + damaged.id, mapping=damage)  # type: ignore[arg-type]  # redis takes no dict of str
    redis_client.zadd(LEASES_KEY, {damaged.id: 0.0})
    for _ in range(2):
        assert [job.id for job in redis_store.page(limit=9).jobs] == [sound.id]
        assert sweep(redis_store, redis_client) == (sound.id,)
    oldest = redis_store.oldest(JobState.QUEUED)
    assert oldest is not None and oldest.id == sound.id
    with pytest.raises(RecordUnreadable, match=damaged.id):
        redis_store.get(damaged.id)
    assert claim(redis_store, damaged.id, worker="w", length=MINUTE) is None
    assert redis_client.hgetall(MALFORMED_KEY) == {"record": "1"}


def test_a_job_under_the_key_of_another_is_not_taken_for_it(
    redis_store: RedisJobStore, redis_client: redis.Redis
) -> None:
    first, second = add(redis_store), add(redis_store)
    redis_client.copy(JOB_KEY + first.id, JOB_KEY + second.id, replace=True)
    with pytest.raises(RecordUnreadable):
        redis_store.get(second.id)
    assert [job.id for job in redis_store.page(limit=9).jobs] == [first.id]


def test_a_key_of_another_type_is_no_record(redis_store: RedisJobStore, redis_client: redis.Redis) -> None:
    damaged, sound = add(redis_store), add(redis_store)
    redis_client.set(JOB_KEY + damaged.id, "a string")
    assert [job.id for job in redis_store.page(limit=9).jobs] == [sound.id]
    assert sweep(redis_store, redis_client) == (sound.id,)
    with pytest.raises(RecordUnreadable):
        redis_store.get(damaged.id)


def test_a_job_that_only_an_index_names_is_not_found(
    redis_store: RedisJobStore, redis_client: redis.Redis
) -> None:
    lost, sound = add(redis_store), add(redis_store)
    redis_client.delete(JOB_KEY + lost.id)
    redis_client.zadd(INDEX_KEY + "queued", {"no id at all": 0})
    redis_client.zadd(LEASES_KEY, {lost.id: 0.0, "no id at all": float("inf")})
    assert [job.id for job in redis_store.page(limit=9, state=JobState.QUEUED).jobs] == [sound.id]
    assert sweep(redis_store, redis_client) == (sound.id,)
    with pytest.raises(JobNotFound):
        redis_store.get(lost.id)


def test_no_change_of_some_bytes_stops_a_sweep(redis_store: RedisJobStore, redis_client: redis.Redis) -> None:
    dice = random.Random(19)
    jobs = [add(redis_store) for _ in range(3)]
    held = [redis_client.hgetall(JOB_KEY + job.id) for job in jobs]
    for _ in range(150):
        for job, hash_ in zip(jobs[:2], held[:2], strict=True):
            damaged = {name: _change(str(text).encode(), dice) for name, text in hash_.items()}
            redis_client.hset(JOB_KEY + job.id, mapping=damaged)  # type: ignore[arg-type]  # redis takes no dict of str
        redis_client.zadd(LEASES_KEY, {jobs[0].id: 0.0})
        assert jobs[2].id in sweep(redis_store, redis_client)
        assert jobs[2].id in {job.id for job in redis_store.page(limit=9).jobs}
        redis_store.oldest(JobState.QUEUED)


def _change(content: bytes, dice: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(changed))
        match dice.randrange(3):
            case 0:
                changed[at] = dice.randrange(256)
            case 1:
                del changed[at : at + dice.randrange(1, 30)]
            case _:
                changed[at:at] = dice.choice([b"null", b"9" * 400, b"[[", b'"', b"\xff", b"1e999", b"{}"])
        changed = changed or bytearray(b"0")
    return bytes(changed)


def test_a_notice_that_is_none_hides_no_worker(redis_client: redis.Redis) -> None:
    for worker, text in {"w1": "{", "w2": "[]", "w3": '{"id": "w3"}'}.items():
        redis_client.set(WORKER_KEY + worker, text)
        redis_client.zadd(WORKERS_KEY, {worker: 9e12})
    roster = RedisRoster(redis_client)
    assert roster.alive() == roster.alive() == ()
    assert RedisTallies(redis_client).read_malformed() == {"WorkerNotice": 3}


def test_a_tally_that_is_none_is_left_out(redis_client: redis.Redis) -> None:
    redis_client.hset(
        TALLIES_KEY, mapping={"{": 1, '{"name": "a"}': "many", '{"name": "b"}': "nan", '{"name": "c"}': "2.5"}
    )
    assert {tally.name: amount for tally, amount in RedisTallies(redis_client).read().items()} == {"c": 2.5}


def test_a_promoted_release_that_is_none_counts_as_none(redis_client: redis.Redis) -> None:
    redis_client.lpush(PROMOTED_KEY + "m", "{", "[]")
    assert RedisPointers(redis_client).get_promoted("m") is None
    assert RedisPointers(redis_client).has_promoted("m")  # though nobody can say which
    assert not RedisPointers(redis_client).has_promoted("n")


def test_an_answer_that_is_none_lets_nobody_repeat_its_request(redis_client: redis.Redis) -> None:
    redis_client.set(ANSWER_KEY + "me:k", "{")
    with pytest.raises(KeyReused):
        RedisAnswers(redis_client, MINUTE).begin(AnswerKey("me", "k"), "f")


def test_logs_and_bundles_that_are_none_are_not_shown(redis_client: redis.Redis) -> None:
    job_id = new_job_id()
    redis_client.set(f"{LOG_KEY}{job_id}:user:trace", "no list")
    redis_client.set(f"{BUNDLE_KEY}{job_id}:user", "no base64")
    assert RedisLogs(redis_client).read(job_id) == ()
    assert RedisBundles(redis_client).get(job_id, TowerName.USER) is None


def test_the_log_shows_the_beginning_of_the_data_once(
    redis_store: RedisJobStore, redis_client: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    job = add(redis_store)
    redis_client.hset(JOB_KEY + job.id, "record", "\x1b[2J" + "x" * 1_000_000)
    for _ in range(3):
        redis_store.page(limit=9)
    [noted] = [record for record in caplog.records if record.message == "malformed_data"]
    assert len(json.dumps(noted.__dict__, default=str)) < 5000
    assert noted.__dict__["excerpt"].startswith("'\\x1b[2J") and JOB_KEY + job.id == noted.__dict__["place"]


@pytest.mark.parametrize(
    "record", [{"version": 4, "id": "x" * 10**6}, {"y" * 10**6: 1}, {"version": 10**4000}]
)
def test_an_error_about_a_record_stays_short(
    redis_store: RedisJobStore, redis_client: redis.Redis, record: dict[str, object]
) -> None:
    job = add(redis_store)
    sound = json.loads(str(redis_client.hget(JOB_KEY + job.id, "record")))
    redis_client.hset(JOB_KEY + job.id, "record", json.dumps({**sound, **record}))
    with pytest.raises(RecordUnreadable) as refused:
        redis_store.get(job.id)
    assert len(refused.value.message) < 300

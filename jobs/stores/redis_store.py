"""The job store in Redis: one hash per job, one sorted set per state, and one of the leases' ends."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

import redis
from pydantic import TypeAdapter
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from exporter.spec import Target
from jobs.errors import JobNotFound, QuotaExceeded, RecordTooNew, StoreUnavailable
from jobs.events import make_outbox_entries
from jobs.ids import JobId
from jobs.model import Job, JobState
from jobs.stores.job_store import JobPage
from jobs.stores.record import read_record, write_record, write_spec

JOB_KEY = "slipway:job:"  # + id: hash of spec, record, revision
INDEX_KEY = "slipway:jobs:"  # + state, or "all": sorted set of ids, in the order of the ids themselves
OWNER_KEY = "slipway:owner:"  # + state:owner: set of ids
LEASES_KEY = "slipway:leases"  # sorted set: id by the Unix second its lease ends
CONTENT_KEY = "slipway:content:"  # + content key: id of the latest successful job
RELEASES_KEY = "slipway:releases:"  # + model: sorted set of the ids of its successful jobs
MODELS_KEY = "slipway:models"  # sorted set of models that have any
OUTBOX_KEY = "slipway:outbox"  # list: events for callers, oldest first (see jobs.hooks.redis_outbox)

log = logging.getLogger(__name__)

_ALL = "all"
_SCORED = TypeAdapter(list[tuple[JobId, float]])
_TIMEOUT_S = 5.0
_REFUSED = -1

# KEYS: job, index of its state, index of all, the owner's set of its state, outbox. ARGV: id, limit of the
# owner's set or "", spec, record, revision, targets it waits for, then the events for callers.
_ADD = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
if ARGV[2] ~= '' and redis.call('SCARD', KEYS[4]) >= tonumber(ARGV[2]) then return -1 end
redis.call('HSET', KEYS[1], 'spec', ARGV[3], 'record', ARGV[4], 'revision', ARGV[5], 'targets', ARGV[6])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
redis.call('SADD', KEYS[4], ARGV[1])
for i = 7, #ARGV do redis.call('RPUSH', KEYS[5], ARGV[i]) end
return 1
"""

# KEYS: job, indexes of the old state and of the new one, the owner's sets of both, leases, outbox, content
# pointer, releases, models. ARGV: id, expected revision, new revision, record, end of lease or "", limit of
# the owner's new set or "", "1" if the content pointer is to be set, model to release or "", targets it waits
# for or runs for, then the events for callers.
_REPLACE = """
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[2] then return 0 end
if ARGV[6] ~= '' and redis.call('SCARD', KEYS[5]) >= tonumber(ARGV[6]) then return -1 end
redis.call('HSET', KEYS[1], 'record', ARGV[4], 'revision', ARGV[3], 'targets', ARGV[9])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('SADD', KEYS[5], ARGV[1])
if ARGV[5] == '' then redis.call('ZREM', KEYS[6], ARGV[1])
else redis.call('ZADD', KEYS[6], ARGV[5], ARGV[1]) end
if ARGV[7] == '1' then redis.call('SET', KEYS[8], ARGV[1]) end
if ARGV[8] ~= '' then
  redis.call('ZADD', KEYS[9], 0, ARGV[1])
  redis.call('ZADD', KEYS[10], 0, ARGV[8])
end
for i = 10, #ARGV do redis.call('RPUSH', KEYS[7], ARGV[i]) end
return 1
"""

# KEYS: job, index of its state, index of all, the owner's set of its state, releases of its model, content
# pointer. ARGV: id, expected revision.
_REMOVE = """
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('SREM', KEYS[4], ARGV[1])
redis.call('ZREM', KEYS[5], ARGV[1])
if redis.call('GET', KEYS[6]) == ARGV[1] then redis.call('DEL', KEYS[6]) end
return 1
"""


RedisClient = redis.Redis  # for programs that only pass it on


def connect(url: str) -> redis.Redis:
    """Return a client that fails within seconds if Redis is away."""
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        health_check_interval=30,
        retry=Retry(ExponentialBackoff(cap=0.2, base=0.05), 2),
    )


@contextmanager
def translate_redis_errors() -> Iterator[None]:
    """Raise StoreUnavailable for a Redis that is away, out of memory or read-only."""
    try:
        yield
    except redis.RedisError as error:
        raise StoreUnavailable(error) from error


class RedisJobStore:
    """Jobs in Redis, by Redis's clock."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client` (see `connect`), which the caller closes."""
        self._redis = client
        self._add = client.register_script(_ADD)
        self._replace = client.register_script(_REPLACE)
        self._remove = client.register_script(_REMOVE)

    def now(self) -> datetime:
        with translate_redis_errors():
            seconds, microseconds = self._redis.time()
        return datetime.fromtimestamp(seconds + microseconds / 1e6, UTC)

    def add(self, job: Job, *, max_queued: int | None = None) -> bool:
        limit = "" if max_queued is None else max_queued
        record, spec = write_record(job), write_spec(job.spec)
        with translate_redis_errors():
            done = self._add(
                keys=[*_keys(job), OUTBOX_KEY],
                args=[
                    job.id,
                    limit,
                    spec,
                    record,
                    str(job.revision),
                    _targets(job),
                    *_serialize_news(None, job),
                ],
            )
        if done == _REFUSED and max_queued is not None:
            raise QuotaExceeded(job.owner, max_queued, job.state)
        return bool(done)

    def get(self, job_id: JobId) -> Job:
        with translate_redis_errors():
            record, spec = self._redis.hmget(JOB_KEY + job_id, ["record", "spec"])
        if record is None or spec is None:
            raise JobNotFound(job_id)
        return read_record(str(record), str(spec))

    def replace(self, old: Job, new: Job) -> bool:
        begins = new.state is JobState.RUNNING and old.state is not JobState.RUNNING
        limit = new.running_limit if begins else None
        succeeded = new.state is JobState.SUCCEEDED
        keys = [
            JOB_KEY + old.id,
            INDEX_KEY + old.state,
            INDEX_KEY + new.state,
            _owner_key(old),
            _owner_key(new),
            LEASES_KEY,
            OUTBOX_KEY,
            CONTENT_KEY + (new.content_key or ""),
            RELEASES_KEY + (new.model or ""),
            MODELS_KEY,
        ]
        args = [
            old.id,
            str(old.revision),
            str(new.revision),
            write_record(new),
            new.lease.until.timestamp() if new.lease else "",
            "" if limit is None else limit,
            "1" if succeeded and new.content_key else "",
            (new.model or "") if succeeded else "",
            _targets(new),
            *_serialize_news(old, new),
        ]
        with translate_redis_errors():
            done = self._replace(keys=keys, args=args)
        if done == _REFUSED and limit is not None:
            raise QuotaExceeded(new.owner, limit, new.state)
        return bool(done)

    def remove(self, job: Job) -> bool:
        with translate_redis_errors():
            keys = [*_keys(job), RELEASES_KEY + (job.model or ""), CONTENT_KEY + (job.content_key or "")]
            return bool(self._remove(keys=keys, args=[job.id, str(job.revision)]))

    def revision(self, job_id: JobId) -> int:
        with translate_redis_errors():
            found = self._redis.hget(JOB_KEY + job_id, "revision")
        if found is None:
            raise JobNotFound(job_id)
        return int(found)

    def count(self, state: JobState) -> int:
        with translate_redis_errors():
            return int(self._redis.zcard(INDEX_KEY + state))

    def count_by_target(self, state: JobState) -> Mapping[Target, int]:
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            ids = [JobId(str(each)) for each in self._redis.zrange(INDEX_KEY + state, 0, -1)]
            for job_id in ids:
                pipe.hget(JOB_KEY + job_id, "targets")
            found = dict(zip(ids, pipe.execute(), strict=True))
        # Jobs whose records an older version wrote.
        old = self._read([job_id for job_id, targets in found.items() if targets is None])
        counted = Counter(each for job in old for each in job.busy_targets)
        return counted + Counter(each for targets in found.values() if targets for each in targets.split(","))

    def oldest(self, state: JobState) -> Job | None:
        with translate_redis_errors():
            ids = self._redis.zrange(INDEX_KEY + state, 0, 0)
        return next(iter(self._read([JobId(str(each)) for each in ids])), None)

    def find_content(self, key: str) -> JobId | None:
        with translate_redis_errors():
            found = self._redis.get(CONTENT_KEY + key)
        return None if found is None else JobId(str(found))

    def page(self, *, limit: int, state: JobState | None = None, before: JobId | None = None) -> JobPage:
        newest = f"({before}" if before else "+"
        with translate_redis_errors():
            found = self._redis.zrevrangebylex(INDEX_KEY + (state or _ALL), newest, "-", 0, limit + 1)
        ids = [JobId(str(each)) for each in found]
        jobs = self._read(ids[:limit])
        more = len(ids) > limit
        # A job may have left the state since the index was read; it must not be listed under it.
        shown = tuple(job for job in jobs if state in (None, job.state))
        return JobPage(shown, ids[limit - 1] if more else None)

    def leases(self) -> Mapping[JobId, datetime]:
        with translate_redis_errors():
            found = self._redis.zrange(LEASES_KEY, 0, -1, withscores=True)
        return {each: datetime.fromtimestamp(end, UTC) for each, end in _SCORED.validate_python(found)}

    def _read(self, ids: list[JobId]) -> list[Job]:
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hmget(JOB_KEY + job_id, ["record", "spec"])
            rows = pipe.execute()
        return list(_readable([(record, spec) for record, spec in rows if record is not None]))


def _serialize_news(old: Job | None, new: Job) -> list[str]:
    return [entry.model_dump_json() for entry in make_outbox_entries(old, new)]


def _keys(job: Job) -> list[str]:
    return [JOB_KEY + job.id, INDEX_KEY + job.state, INDEX_KEY + _ALL, _owner_key(job)]


def _owner_key(job: Job) -> str:
    return f"{OWNER_KEY}{job.state}:{job.owner}"


def _targets(job: Job) -> str:
    return ",".join(job.busy_targets)


def _readable(rows: list[tuple[str, str]]) -> Iterator[Job]:
    """Yield the jobs that this program can read; newer programs read the others."""
    for record, spec in rows:
        try:
            yield read_record(record, spec)
        except RecordTooNew as error:
            log.info("record_too_new", extra={"reason": error.message})

"""The job store in Redis: one hash per job, one sorted set per state, one of lease ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from jobs.errors import JobNotFound, StoreUnavailable
from jobs.events import news_of
from jobs.ids import JobId
from jobs.model import Job, JobState
from jobs.store import Page

JOB_KEY = "slipway:job:"  # + id: hash of spec, record, revision
INDEX_KEY = "slipway:jobs:"  # + state, or "all": sorted set of ids, in the order of the ids themselves
LEASES_KEY = "slipway:leases"  # sorted set: id by the Unix second its lease ends
OUTBOX_KEY = "slipway:outbox"  # list: what callers are to be told, oldest first (see jobs.redis_outbox)

_ALL = "all"
_TIMEOUT_S = 5.0

# KEYS: job, index of the old state, index of the new one, leases, outbox. ARGV: id, expected revision,
# new revision, record, end of lease or "", then what callers are to be told.
_REPLACE = """
if redis.call('HGET', KEYS[1], 'revision') ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], 'record', ARGV[4], 'revision', ARGV[3])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
if ARGV[5] == '' then redis.call('ZREM', KEYS[4], ARGV[1])
else redis.call('ZADD', KEYS[4], ARGV[5], ARGV[1]) end
for i = 6, #ARGV do redis.call('RPUSH', KEYS[5], ARGV[i]) end
return 1
"""

# KEYS: job, index of all, index of its state, outbox. ARGV: id, spec, record, revision, then as above.
_ADD = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('HSET', KEYS[1], 'spec', ARGV[2], 'record', ARGV[3], 'revision', ARGV[4])
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('ZADD', KEYS[3], 0, ARGV[1])
for i = 5, #ARGV do redis.call('RPUSH', KEYS[4], ARGV[i]) end
return 1
"""


def connect(url: str) -> redis.Redis:
    """A client that gives up on a Redis that is away within seconds."""
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=_TIMEOUT_S,
        socket_connect_timeout=_TIMEOUT_S,
        health_check_interval=30,
        retry=Retry(ExponentialBackoff(cap=0.2, base=0.05), 2),
    )


@contextmanager
def reaching() -> Iterator[None]:
    """Turn a Redis that is away into StoreUnavailable."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise StoreUnavailable(error) from error


class RedisJobStore:
    """Jobs in Redis; the clock is Redis's own."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client` (see `connect`), which stays the caller's to close."""
        self._redis = client
        self._replace = client.register_script(_REPLACE)
        self._add = client.register_script(_ADD)

    def now(self) -> datetime:
        with reaching():
            seconds, microseconds = self._redis.time()
        return datetime.fromtimestamp(seconds + microseconds / 1e6, UTC)

    def add(self, job: Job) -> bool:
        keys = [JOB_KEY + job.id, INDEX_KEY + _ALL, INDEX_KEY + job.state, OUTBOX_KEY]
        record, spec = job.model_dump_json(exclude={"spec"}), job.spec.model_dump_json()
        with reaching():
            done = self._add(keys=keys, args=[job.id, spec, record, str(job.revision), *_told(None, job)])
        return bool(done)

    def get(self, job_id: JobId) -> Job:
        found = self._read([job_id])
        if not found:
            raise JobNotFound(job_id)
        return found[0]

    def replace(self, old: Job, new: Job) -> bool:
        keys = [JOB_KEY + old.id, INDEX_KEY + old.state, INDEX_KEY + new.state, LEASES_KEY, OUTBOX_KEY]
        record = new.model_dump_json(exclude={"spec"})
        lease_end = new.lease.until.timestamp() if new.lease else ""
        with reaching():
            done = self._replace(
                keys=keys,
                args=[old.id, str(old.revision), str(new.revision), record, lease_end, *_told(old, new)],
            )
        return bool(done)

    def page(self, *, limit: int, state: JobState | None = None, before: JobId | None = None) -> Page:
        newest = f"({before}" if before else "+"
        with reaching():
            found = self._redis.zrevrangebylex(INDEX_KEY + (state or _ALL), newest, "-", 0, limit + 1)
        ids = [JobId(str(each)) for each in found]
        jobs = self._read(ids[:limit])
        more = len(ids) > limit
        # A job may have left the state since the index was read; the reader must not see it there.
        shown = tuple(job for job in jobs if state in (None, job.state))
        return Page(shown, ids[limit - 1] if more else None)

    def expired(self) -> tuple[JobId, ...]:
        now = self.now().timestamp()
        with reaching():
            ids = self._redis.zrangebyscore(LEASES_KEY, "-inf", now)
        return tuple(JobId(str(each)) for each in ids)

    def _read(self, ids: list[JobId]) -> list[Job]:
        with reaching(), self._redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hmget(JOB_KEY + job_id, ["record", "spec"])
            rows = pipe.execute()
        return [_job(record, spec) for record, spec in rows if record is not None]


def _told(old: Job | None, new: Job) -> list[str]:
    return [entry.model_dump_json() for entry in news_of(old, new)]


def _job(record: str, spec: str) -> Job:
    # Both are JSON objects of our own writing: joined as text, they are parsed once.
    return Job.model_validate_json(f'{record[:-1]},"spec":{spec}}}')

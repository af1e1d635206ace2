"""The roster of workers in Redis: one notice per worker, under keys that expire."""

from datetime import timedelta

import redis

from jobs.fleet.roster import WorkerNotice
from jobs.stores.malformed import MalformedData
from jobs.stores.redis_store import translate_redis_errors

WORKER_KEY = "slipway:worker:"  # + id, expires
WORKERS_KEY = "slipway:workers"  # sorted set: id by the Unix second it expires
SWEEP_KEY = "slipway:sweep"  # the worker that swept last; expires


class RedisRoster:
    """The roster in Redis, whose clock expires the notices."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client`, which the caller closes."""
        self._redis = client
        self._malformed = MalformedData(client)

    def announce(self, notice: WorkerNotice, lifetime: timedelta) -> None:
        with translate_redis_errors():
            seconds, _ = self._redis.time()
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(WORKER_KEY + notice.id, notice.model_dump_json(), px=lifetime)
                pipe.zadd(WORKERS_KEY, {notice.id: seconds + lifetime.total_seconds()})
                pipe.zremrangebyscore(WORKERS_KEY, "-inf", seconds)
                pipe.execute()

    def withdraw(self, worker: str) -> None:
        with translate_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(WORKER_KEY + worker)
            pipe.zrem(WORKERS_KEY, worker)
            pipe.execute()

    def alive(self) -> tuple[WorkerNotice, ...]:
        with translate_redis_errors():
            ids = self._redis.zrange(WORKERS_KEY, 0, -1)
            notices = self._redis.mget([WORKER_KEY + str(each) for each in ids]) if ids else []
        known = zip(ids, notices, strict=True)
        parsed = [self._parse(str(each), text) for each, text in known if text is not None]
        return tuple(notice for notice in parsed if notice)

    def _parse(self, worker: str, text: object) -> WorkerNotice | None:
        return self._malformed.parse(WorkerNotice, WORKER_KEY + worker, text)

    def may_sweep(self, worker: str, interval: timedelta) -> bool:
        with translate_redis_errors():
            if self._redis.set(SWEEP_KEY, worker, nx=True, px=interval):
                return True
            if int(self._redis.pttl(SWEEP_KEY)) <= interval / timedelta(milliseconds=1):
                return False
            self._redis.set(SWEEP_KEY, worker, px=interval)  # the clock has been set back since
            return True

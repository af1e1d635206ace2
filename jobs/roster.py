"""Which workers are alive: each announces itself under a key that expires."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Protocol

import redis

from exporter.spec import Device, Frozen
from jobs.ids import JobId
from jobs.redis_store import reaching

WORKER_KEY = "slipway:worker:"  # + id, expires
WORKERS_KEY = "slipway:workers"  # sorted set: id by the Unix second it expires
SWEEP_KEY = "slipway:sweep"  # the worker that swept last, expires


class WorkerNotice(Frozen):
    """What a worker says of itself."""

    id: str
    host: str
    pid: int
    device: Device
    versions: Mapping[str, str]
    started_at: datetime
    jobs: tuple[JobId, ...] = ()  # being worked on


class Roster(Protocol):
    """The workers that announced themselves of late."""

    def announce(self, notice: WorkerNotice, lifetime: timedelta) -> None: ...

    def withdraw(self, worker: str) -> None: ...

    def alive(self) -> tuple[WorkerNotice, ...]: ...

    def may_sweep(self, worker: str, interval: timedelta) -> bool:
        """True for one worker per interval: sweeping is harmless, but once is enough."""
        ...


class RedisRoster:
    """The roster in Redis, whose clock ends the notices."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client`, which stays the caller's to close."""
        self._redis = client

    def announce(self, notice: WorkerNotice, lifetime: timedelta) -> None:
        with reaching():
            seconds, _ = self._redis.time()
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.set(WORKER_KEY + notice.id, notice.model_dump_json(), px=lifetime)
                pipe.zadd(WORKERS_KEY, {notice.id: seconds + lifetime.total_seconds()})
                pipe.zremrangebyscore(WORKERS_KEY, "-inf", seconds)
                pipe.execute()

    def withdraw(self, worker: str) -> None:
        with reaching(), self._redis.pipeline(transaction=True) as pipe:
            pipe.delete(WORKER_KEY + worker)
            pipe.zrem(WORKERS_KEY, worker)
            pipe.execute()

    def alive(self) -> tuple[WorkerNotice, ...]:
        with reaching():
            ids = self._redis.zrange(WORKERS_KEY, 0, -1)
            notices = self._redis.mget([WORKER_KEY + str(each) for each in ids]) if ids else []
        return tuple(WorkerNotice.model_validate_json(text) for text in notices if text is not None)

    def may_sweep(self, worker: str, interval: timedelta) -> bool:
        with reaching():
            return bool(self._redis.set(SWEEP_KEY, worker, nx=True, px=interval))


class MemoryRoster:
    """The roster in this process's memory, for tests; notices do not expire."""

    def __init__(self) -> None:
        """Begin empty."""
        self._notices: dict[str, WorkerNotice] = {}

    def announce(self, notice: WorkerNotice, lifetime: timedelta) -> None:
        self._notices[notice.id] = notice

    def withdraw(self, worker: str) -> None:
        self._notices.pop(worker, None)

    def alive(self) -> tuple[WorkerNotice, ...]:
        return tuple(self._notices.values())

    def may_sweep(self, worker: str, interval: timedelta) -> bool:
        return True

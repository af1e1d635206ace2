"""Job logs in Redis: a bounded list per tower and stage, under keys that expire."""

from collections.abc import Sequence
from datetime import timedelta

import redis

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import MAX_LINES, LogPart, parts_to_read
from jobs.ids import JobId
from jobs.stores.redis_store import translate_redis_errors

LOG_KEY = "slipway:log:"  # + id:tower:stage, expires
RETENTION = timedelta(days=7)


class RedisLogs:
    """The latest lines in Redis."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client`, which the caller closes."""
        self._redis = client

    def append(self, job_id: JobId, parts: Sequence[LogPart]) -> None:
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for part in parts:
                key = _key(job_id, part.tower, part.stage)
                pipe.rpush(key, *part.lines)
                pipe.ltrim(key, -MAX_LINES, -1)
                pipe.expire(key, RETENTION)
            pipe.execute()

    def read(
        self, job_id: JobId, tower: TowerName | None = None, stage: Stage | None = None
    ) -> tuple[LogPart, ...]:
        wanted = parts_to_read(tower, stage)
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for each, step in wanted:
                pipe.lrange(_key(job_id, each, step), 0, -1)
            found = pipe.execute(raise_on_error=False)
        return tuple(
            LogPart(tower=each, stage=step, lines=tuple(lines))
            for (each, step), lines in zip(wanted, found, strict=True)
            if lines and isinstance(lines, list)
        )


def _key(job_id: JobId, tower: TowerName | None, stage: Stage | None) -> str:
    return f"{LOG_KEY}{job_id}:{tower or '-'}:{stage or '-'}"

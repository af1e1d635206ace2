"""Bundles in Redis, which expire together with the logs."""

import base64

import redis

from exporter.spec import TowerName
from jobs.diagnostics.bundles import bundle_url
from jobs.diagnostics.redis_logs import RETENTION
from jobs.ids import JobId
from jobs.stores.redis_store import translate_redis_errors

BUNDLE_KEY = "slipway:bundle:"  # + id:tower, expires; base64, because the connection decodes text


class RedisBundles:
    """The latest bundles in Redis."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client`, which the caller closes."""
        self._redis = client

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> str:
        with translate_redis_errors():
            self._redis.set(_key(job_id, tower), base64.b64encode(content), ex=RETENTION)
        return bundle_url(job_id, tower)

    def get(self, job_id: JobId, tower: TowerName | None) -> bytes | None:
        with translate_redis_errors():
            found = self._redis.get(_key(job_id, tower))
        try:
            return None if found is None else base64.b64decode(str(found), validate=True)
        except ValueError:  # malformed: the bundle is lost
            return None


def _key(job_id: JobId, tower: TowerName | None) -> str:
    return f"{BUNDLE_KEY}{job_id}:{tower or '-'}"

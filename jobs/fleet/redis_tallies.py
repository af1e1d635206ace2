"""Tallies in one hash of Redis, so that they outlive every program that counts."""

from collections.abc import Mapping

import redis

from jobs.fleet.tallies import Tally
from jobs.stores.redis_store import translate_redis_errors

TALLIES_KEY = "slipway:tallies"  # hash: amount by tally as JSON


class RedisTallies:
    """Counts in Redis."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client`, which the caller closes."""
        self._redis = client

    def add(self, amounts: Mapping[Tally, float]) -> None:
        with translate_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            for tally, amount in amounts.items():
                pipe.hincrbyfloat(TALLIES_KEY, tally.model_dump_json(exclude_defaults=True), amount)
            pipe.execute()

    def read(self) -> Mapping[Tally, float]:
        with translate_redis_errors():
            found = self._redis.hgetall(TALLIES_KEY)
        return {Tally.model_validate_json(name): float(amount) for name, amount in found.items()}

"""Tallies in one hash of Redis, so that they outlive every program that counts."""

import re
from collections.abc import Mapping

import redis

from jobs.fleet.tallies import Tally
from jobs.stores.malformed import MALFORMED_KEY, MalformedData
from jobs.stores.redis_store import translate_redis_errors

_NUMBER = re.compile(r"[0-9]{1,30}(\.[0-9]{1,30})?(e[+-]?[0-9]{1,2})?")
TALLIES_KEY = "slipway:tallies"  # hash: amount by tally as JSON


class RedisTallies:
    """Counts in Redis."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client`, which the caller closes."""
        self._redis = client
        self._malformed = MalformedData(client)

    def add(self, amounts: Mapping[Tally, float]) -> None:
        with translate_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            for tally, amount in amounts.items():
                pipe.hincrbyfloat(TALLIES_KEY, tally.model_dump_json(exclude_defaults=True), amount)
            pipe.execute()

    def read(self) -> Mapping[Tally, float]:
        with translate_redis_errors():
            found = self._redis.hgetall(TALLIES_KEY)
        counted = {}
        for name, amount in ((str(name), str(amount)) for name, amount in found.items()):
            tally = self._malformed.parse(Tally, f"{TALLIES_KEY} {name}", name)
            if tally is not None and _NUMBER.fullmatch(amount):
                counted[tally] = float(amount)
        return counted

    def read_malformed(self) -> Mapping[str, int]:
        with translate_redis_errors():
            found = self._redis.hgetall(MALFORMED_KEY)
        return {str(kind): int(amount) for kind, amount in found.items() if str(amount).isdecimal()}

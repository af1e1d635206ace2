"""Stored answers in Redis, under keys that expire."""

from datetime import timedelta

import redis

from jobs.control.idempotency import IN_FLIGHT, StoredAnswer, match_answer
from jobs.stores.redis_store import translate_redis_errors

ANSWER_KEY = "slipway:answer:"  # + owner:key, expires


class RedisAnswers:
    """Answers under keys that expire."""

    def __init__(self, client: redis.Redis, retention: timedelta) -> None:
        """Keep each answer for `retention`; the caller closes `client`."""
        self._redis = client
        self._retention = retention

    def begin(self, key: str, fingerprint: str) -> StoredAnswer | None:
        mark = StoredAnswer(fingerprint=fingerprint).model_dump_json()
        with translate_redis_errors():
            while True:
                if self._redis.set(ANSWER_KEY + key, mark, nx=True, px=IN_FLIGHT):
                    return None
                found = self._redis.get(ANSWER_KEY + key)
                if found is not None:  # else it has just expired
                    return match_answer(key, fingerprint, StoredAnswer.model_validate_json(str(found)))

    def keep(self, key: str, answer: StoredAnswer) -> None:
        with translate_redis_errors():
            self._redis.set(ANSWER_KEY + key, answer.model_dump_json(), px=self._retention)

    def drop(self, key: str) -> None:
        with translate_redis_errors():
            self._redis.delete(ANSWER_KEY + key)

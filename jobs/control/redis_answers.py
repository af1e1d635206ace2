"""Stored answers in Redis, under keys that expire."""

from datetime import timedelta
from urllib.parse import quote

import redis

from jobs.control.idempotency import IN_FLIGHT, AnswerKey, StoredAnswer, match_answer
from jobs.errors import KeyReused
from jobs.stores.malformed import MalformedData
from jobs.stores.redis_store import translate_redis_errors

ANSWER_KEY = "slipway:answer:"  # + owner, in which : is %3A, and :key; expires


class RedisAnswers:
    """Answers under keys that expire."""

    def __init__(self, client: redis.Redis, retention: timedelta) -> None:
        """Keep each answer for `retention`; the caller closes `client`."""
        self._redis = client
        self._malformed = MalformedData(client)
        self._retention = retention

    def begin(self, key: AnswerKey, fingerprint: str) -> StoredAnswer | None:
        mark = StoredAnswer(fingerprint=fingerprint).model_dump_json()
        with translate_redis_errors():
            while True:
                if self._redis.set(_redis_key(key), mark, nx=True, px=IN_FLIGHT):
                    return None
                found = self._redis.get(_redis_key(key))
                if found is None:  # it has just expired
                    continue
                answer = self._malformed.parse(StoredAnswer, _redis_key(key), found)
                if answer is None:  # whether the request was carried out is not known
                    raise KeyReused(key.key)
                return match_answer(key, fingerprint, answer)

    def keep(self, key: AnswerKey, answer: StoredAnswer) -> None:
        with translate_redis_errors():
            self._redis.set(_redis_key(key), answer.model_dump_json(), px=self._retention)

    def drop(self, key: AnswerKey) -> None:
        with translate_redis_errors():
            self._redis.delete(_redis_key(key))


def _redis_key(key: AnswerKey) -> str:
    """Join owner and key so that no other pair gives the same text: the first colon separates them."""
    return f"{ANSWER_KEY}{quote(key.owner)}:{key.key}"

"""Receipts in Redis, stored so that a repeated event starts its jobs only once."""

import hashlib
from datetime import timedelta

import redis

from jobs.hooks.receipts import Noted, Receipt
from jobs.stores.malformed import MalformedData
from jobs.stores.redis_store import translate_redis_errors

RECEIPT_KEY = "slipway:event:"  # + digest of source and id: JSON, expires
LATEST_KEY = "slipway:trigger_latest:"  # + trigger: list of JSON, newest first; expires
MESSAGE_KEY = "slipway:webhook:"  # + digest of webhook-id: digest of its event, expires

LATEST = 20  # results kept per trigger


class RedisReceipts:
    """Receipts under keys that expire."""

    def __init__(self, client: redis.Redis, memory: timedelta) -> None:
        """Remember every event for `memory`."""
        self._redis = client
        self._malformed = MalformedData(client)
        self._memory = memory

    def find(self, source: str, event_id: str) -> Receipt | None:
        with translate_redis_errors():
            text = self._redis.get(_key(source, event_id))
        return None if text is None else self._malformed.parse(Receipt, _key(source, event_id), text)

    def open_receipt(self, receipt: Receipt) -> Receipt:
        """Store the receipt unless the event has one already; return the stored one."""
        key, text = _key(receipt.source, receipt.id), receipt.model_dump_json()
        while (kept := self._keep_first(key, text, self._memory)) is not None:
            if (earlier := self._malformed.parse(Receipt, key, kept)) is not None:
                return earlier
            with translate_redis_errors():
                self._redis.delete(key)
        return receipt

    def update_starts(self, receipt: Receipt) -> Receipt:
        """Save the receipt's starts; keep those that others made meanwhile; return the stored receipt."""
        key, merged = _key(receipt.source, receipt.id), receipt

        def write(pipe: redis.client.Pipeline) -> None:
            nonlocal merged
            kept = pipe.get(key)
            earlier = None if kept is None else self._malformed.parse(Receipt, key, kept)
            merged = receipt if earlier is None else receipt.merge(earlier)
            pipe.multi()
            pipe.set(key, merged.model_dump_json(), px=self._memory)

        with translate_redis_errors():
            self._redis.transaction(write, key)
        return merged

    def note(self, trigger: str, noted: Noted) -> None:
        """Add a result to the trigger's latest ones."""
        key = LATEST_KEY + trigger
        with translate_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.lpush(key, noted.model_dump_json())
            pipe.ltrim(key, 0, LATEST - 1)
            pipe.pexpire(key, self._memory)
            pipe.execute()

    def latest(self, trigger: str) -> tuple[Noted, ...]:
        """Return the trigger's latest results, newest first."""
        with translate_redis_errors():
            texts = self._redis.lrange(LATEST_KEY + trigger, 0, -1)
        parsed = [self._malformed.parse(Noted, LATEST_KEY + trigger, text) for text in texts]
        return tuple(noted for noted in parsed if noted)

    def forget(self, trigger: str) -> None:
        """Remove a deleted trigger's results, so that a new trigger of its name starts without any."""
        with translate_redis_errors():
            self._redis.delete(LATEST_KEY + trigger)

    def bind(self, message_id: str, content: bytes, lifetime: timedelta) -> bool:
        """Return False if a webhook with this id came with other content a moment ago."""
        digest = hashlib.sha256(content).hexdigest()
        key = MESSAGE_KEY + hashlib.sha256(message_id.encode()).hexdigest()
        return self._keep_first(key, digest, lifetime) in (None, digest)

    def _keep_first(self, key: str, value: str, lifetime: timedelta) -> str | None:
        """Store the value and return None; or leave the value that is there already, and return that."""
        with translate_redis_errors():
            while not self._redis.set(key, value, px=lifetime, nx=True):
                if (kept := self._redis.get(key)) is not None:  # it may have expired meanwhile
                    return str(kept)
        return None


def _key(source: str, event_id: str) -> str:
    return RECEIPT_KEY + hashlib.sha256(f"{source}\0{event_id}".encode()).hexdigest()

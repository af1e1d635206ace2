"""Small records in Redis, ordered by name: triggers and subscriptions."""

from typing import Generic, TypeVar

import redis
from pydantic import BaseModel

from jobs.hooks.pages import BookPage
from jobs.stores.malformed import MalformedData
from jobs.stores.redis_store import translate_redis_errors

T = TypeVar("T", bound=BaseModel)

# Fields unknown to older programs: left out at their defaults, so that those can read the record.
_NEWER = ("uris",)

# KEYS: records, names. ARGV: name, record. 1 when the name is new.
_PUT = """
redis.call('ZADD', KEYS[2], 0, ARGV[1])
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
"""


class RedisBook(Generic[T]):
    """A hash of records beside a sorted set of their names."""

    def __init__(self, client: redis.Redis, key: str, record: type[T]) -> None:
        """Store records of one class under `key`."""
        self._redis = client
        self._malformed = MalformedData(client)
        self._records, self._names = key, f"{key}:names"
        self._class = record
        self._put = client.register_script(_PUT)

    def put(self, name: str, record: T) -> bool:
        """Store the record; return True if the name is new."""
        with translate_redis_errors():
            return bool(self._put(keys=[self._records, self._names], args=[name, _dump(record)]))

    def get(self, name: str) -> T | None:
        with translate_redis_errors():
            text = self._redis.hget(self._records, name)
        return None if text is None else self._parse(name, text)

    def delete(self, name: str) -> bool:
        """Delete the record; return False if there was none."""
        with translate_redis_errors(), self._redis.pipeline(transaction=True) as pipe:
            pipe.hdel(self._records, name)
            pipe.zrem(self._names, name)
            deleted, _ = pipe.execute()
        return bool(deleted)

    def all(self) -> tuple[T, ...]:
        with translate_redis_errors():
            texts = self._redis.hgetall(self._records)
        parsed = [self._parse(str(name), texts[name]) for name in sorted(texts)]
        return tuple(record for record in parsed if record)

    def page(self, *, limit: int, after: str | None) -> BookPage[T]:
        with translate_redis_errors():
            first = f"({after}" if after else "-"
            names = [str(each) for each in self._redis.zrangebylex(self._names, first, "+", 0, limit + 1)]
            shown = names[:limit]
            texts = self._redis.hmget(self._records, shown) if shown else []
        known = zip(shown, texts, strict=True)
        parsed = [self._parse(name, text) for name, text in known if text is not None]
        records = tuple(record for record in parsed if record)
        return BookPage(records, shown[-1] if len(names) > limit else None)

    def _parse(self, name: str, text: object) -> T | None:
        return self._malformed.parse(self._class, f"{self._records} {name}", text)


def _dump(record: BaseModel) -> str:
    fields = type(record).model_fields
    defaults = {name for name in _NEWER if name in fields and getattr(record, name) == fields[name].default}
    return record.model_dump_json(exclude=defaults)

"""Malformed data in Redis that a program passes over: counted for all programs, and logged once by each."""

import logging
import threading
from typing import TypeVar

import redis
from pydantic import BaseModel

T = TypeVar("T", bound=BaseModel)

MALFORMED_KEY = "slipway:malformed"  # hash: how many were passed over, by kind

_EXCERPT = 200  # characters logged of the data
_REMEMBERED = 10_000  # places that are not logged again

log = logging.getLogger(__name__)


class MalformedData:
    """Counts and logs data that a program could not read; a place that it passes often counts once."""

    def __init__(self, client: redis.Redis) -> None:
        """Count in `client`'s Redis."""
        self._redis = client
        self._places: set[str] = set()
        self._lock = threading.Lock()

    def skip(self, kind: str, place: str, data: object, error: Exception | None = None) -> None:
        """Note that the data at a place was passed over, unless that was noted before."""
        with self._lock:
            if place in self._places:
                return
            if len(self._places) >= _REMEMBERED:
                self._places.clear()
            self._places.add(place)
        self.drop(kind, place, data, error)

    def parse(self, record: type[T], place: str, text: object) -> T | None:
        """Return the record in a text; None for a malformed one, which is noted."""
        try:
            return record.model_validate_json(str(text))
        except ValueError as error:
            self.skip(record.__name__, place, text, error)
            return None

    def drop(self, kind: str, place: str, data: object, error: Exception | None = None) -> None:
        """Note that data was removed from a place; if Redis is away, it is only logged."""
        reason = type(error.__cause__ or error).__name__ if error else ""
        excerpt = ascii(data[:_EXCERPT] if isinstance(data, str | bytes) else data)[:_EXCERPT]
        log.warning(
            "malformed_data",
            extra={"kind": kind, "place": place[:_EXCERPT], "reason": reason, "excerpt": excerpt},
        )
        try:
            self._redis.hincrby(MALFORMED_KEY, kind, 1)
        except redis.RedisError:
            log.info("malformed_data_not_counted")

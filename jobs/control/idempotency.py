"""Stored answers by the caller's idempotency key, so that a repeated request is answered only once."""

import threading
from datetime import timedelta
from typing import NamedTuple, Protocol

from exporter.spec import Frozen
from jobs.errors import KeyInFlight, KeyReused


class AnswerKey(NamedTuple):
    """A caller's own idempotency key; those of different callers never collide."""

    owner: str
    key: str


class StoredAnswer(Frozen):
    """The answer to a request with an idempotency key; without a body it is not ready yet."""

    fingerprint: str  # digest of the request
    body: str | None = None


class Answers(Protocol):
    """Stored answers by owner and key."""

    def begin(self, key: AnswerKey, fingerprint: str) -> StoredAnswer | None:
        """Return the stored answer; None if there is none, and this caller must answer the request.

        Raises:
            KeyReused: the key belongs to another request.
            KeyInFlight: the request is still being answered.
        """
        ...

    def keep(self, key: AnswerKey, answer: StoredAnswer) -> None:
        """Store the answer to a request that `begin` returned None for."""
        ...

    def drop(self, key: AnswerKey) -> None:
        """Forget the request, so that the next request with this key is carried out."""
        ...


IN_FLIGHT = timedelta(minutes=2)  # after this time the program that was to answer counts as dead


def match_answer(key: AnswerKey, fingerprint: str, kept: StoredAnswer) -> StoredAnswer:
    """Return the stored answer; raise if it is unfinished, or belongs to another request."""
    if kept.fingerprint != fingerprint:
        raise KeyReused(key.key)
    if kept.body is None:
        raise KeyInFlight(key.key)
    return kept


class MemoryAnswers:
    """Answers in a dict, never forgotten; for tests."""

    def __init__(self) -> None:
        """Start without answers."""
        self._kept: dict[AnswerKey, StoredAnswer] = {}
        self._lock = threading.Lock()

    def begin(self, key: AnswerKey, fingerprint: str) -> StoredAnswer | None:
        with self._lock:
            if key in self._kept:
                return match_answer(key, fingerprint, self._kept[key])
            self._kept[key] = StoredAnswer(fingerprint=fingerprint)
            return None

    def keep(self, key: AnswerKey, answer: StoredAnswer) -> None:
        self._kept[key] = answer

    def drop(self, key: AnswerKey) -> None:
        self._kept.pop(key, None)

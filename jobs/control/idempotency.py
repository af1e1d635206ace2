"""Answers that are kept by the caller's idempotency key, so that a repeated request is answered once."""

import threading
from datetime import timedelta
from typing import Protocol

from exporter.spec import Frozen
from jobs.errors import KeyInFlight, KeyReused


class StoredAnswer(Frozen):
    """What a request with an idempotency key came to; without a body it is still being answered."""

    fingerprint: str  # of the request
    body: str | None = None


class Answers(Protocol):
    """Kept answers by key; keys are the caller's own, prefixed with who the caller is."""

    def begin(self, key: str, fingerprint: str) -> StoredAnswer | None:
        """The kept answer; None when there is none yet and the caller is to find it.

        Raises:
            KeyReused: the key belongs to another request.
            KeyInFlight: the answer is being worked on.
        """
        ...

    def keep(self, key: str, answer: StoredAnswer) -> None:
        """Keep the answer that `begin` asked for."""
        ...

    def drop(self, key: str) -> None:
        """There is no answer to keep: the next request with this key is tried anew."""
        ...


IN_FLIGHT = timedelta(minutes=2)  # then the program that was to answer counts as dead


def match_answer(key: str, fingerprint: str, kept: StoredAnswer) -> StoredAnswer:
    """The kept answer, if it is one and it is to this request."""
    name = key.partition(":")[2]
    if kept.fingerprint != fingerprint:
        raise KeyReused(name)
    if kept.body is None:
        raise KeyInFlight(name)
    return kept


class MemoryAnswers:
    """Answers in a dict, kept for ever; for tests."""

    def __init__(self) -> None:
        """Begin empty."""
        self._kept: dict[str, StoredAnswer] = {}
        self._lock = threading.Lock()

    def begin(self, key: str, fingerprint: str) -> StoredAnswer | None:
        with self._lock:
            if key in self._kept:
                return match_answer(key, fingerprint, self._kept[key])
            self._kept[key] = StoredAnswer(fingerprint=fingerprint)
            return None

    def keep(self, key: str, answer: StoredAnswer) -> None:
        self._kept[key] = answer

    def drop(self, key: str) -> None:
        self._kept.pop(key, None)

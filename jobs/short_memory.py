"""Values that are kept for a short while in place of being read again for every request."""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

LIFETIME_S = 1.0


class NotAtHand(Exception):
    """Something is not known without waiting for it: whoever asks has to wait where nobody else waits."""


class Kept(Generic[T]):
    """A value that is read again once it is older than its lifetime; used by any number of threads."""

    def __init__(
        self,
        read: Callable[[], T],
        lifetime_s: float = LIFETIME_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep what `read` returns; nothing is kept of a read that fails."""
        self._read = read
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._kept: tuple[T, float] | None = None

    def get(self) -> T:
        return self.get_with_age()[0]

    def get_with_age(self) -> tuple[T, float]:
        """Return the value, and the seconds since it was read."""
        try:
            return self.find_with_age()
        except NotAtHand:
            value = self._read()
        self._kept = value, self._clock()
        return value, 0.0

    def find(self) -> T:
        """Return the value if it need not be read again; raise NotAtHand if it must be."""
        return self.find_with_age()[0]

    def find_with_age(self) -> tuple[T, float]:
        """Return the value as `get_with_age` does; raise NotAtHand where that would read it."""
        kept, now = self._kept, self._clock()
        if kept is None or now - kept[1] >= self._lifetime_s:
            raise NotAtHand
        return kept[0], now - kept[1]


class KeptClock:
    """A clock that somebody else keeps, read once a second; in between, this machine's counts on from there.

    It is slow by no more than a reading takes, and never fast while the two run alike.
    """

    def __init__(self, read: Callable[[], datetime], clock: Callable[[], float] = time.monotonic) -> None:
        """Read the other clock with `read`, and this machine's with `clock`."""
        self._kept = Kept(read, clock=clock)

    def now(self) -> datetime:
        then, age = self._kept.get_with_age()
        return then + timedelta(seconds=age)

    def find_now(self) -> datetime:
        """Return the time if the other clock was read a moment ago; raise NotAtHand if not."""
        then, age = self._kept.find_with_age()
        return then + timedelta(seconds=age)

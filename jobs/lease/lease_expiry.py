"""When it may be taken that a worker is gone: its lease has ended, and nothing else explains that.

A lease ends by the job store's clock. That alone proves little where the store was away, as nobody could
renew, or where its clock was set: who held a lease is then given the time to renew it, and loses nothing. A
worker that is gone does not renew, and is found out one lease later.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from jobs.ids import JobId

_FAR = 3  # leases: one that ends later was written before the store's clock was set back


def since_boot() -> float:
    """Seconds since boot, those asleep included: a clock that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseMonitor:
    """Judges the leases for one program, which tells it whenever it could write to the store."""

    def __init__(self, length: timedelta, clock: Callable[[], float] = since_boot) -> None:
        """Give everybody a lease's `length` to come back after half of one without a word."""
        self._length_s = length.total_seconds()
        self._silence_s = self._length_s / 2  # longer, and a lease could end that nobody was able to renew
        self._clock = clock
        self._latest: tuple[float, datetime] | None = None
        self._fair_from = 0.0
        self._far: dict[JobId, tuple[datetime, float]] = {}  # leases too long, and when they were first seen
        self._lock = threading.Lock()

    def note_write(self, now: datetime) -> None:
        """The store has taken what was written, and this was the time there.

        The first time, one after a long silence and one from a clock that was set begin a time in which
        nobody is judged. That it can be read says nothing: one without memory, or a replica, lets nobody
        renew a lease.
        """
        with self._lock:
            self._latest = (self._note_clocks(now), now)

    def may_expire(self, now: datetime) -> bool:
        """Whether who holds a lease has had the time to renew it."""
        with self._lock:
            return self._note_clocks(now) >= self._fair_from

    def find_expired(self, leases: Mapping[JobId, datetime], now: datetime) -> dict[JobId, datetime]:
        """Those of the leases, each with its end, whose worker is gone.

        Also those that would end long from now, if nobody has written them anew for three times the length
        of a lease: they are from before the store's clock was set back.
        """
        if not self.may_expire(now):
            return {}
        at, far = self._clock(), timedelta(seconds=_FAR * self._length_s)
        self._far = {
            job_id: known if (known := self._far.get(job_id)) and known[0] == until else (until, at)
            for job_id, until in leases.items()
            if until - now > far
        }
        stranded = {job_id for job_id, (_, seen) in self._far.items() if at - seen > far.total_seconds()}
        return {job_id: until for job_id, until in leases.items() if until < now or job_id in stranded}

    def _note_clocks(self, now: datetime) -> float:
        """The time here, once it is seen whether it and that of the store have gone on as they should."""
        at = self._clock()
        if self._latest is None or self._has_irregular_clock(at, now, *self._latest):
            self._fair_from = at + self._length_s
        return at

    def _has_irregular_clock(self, at: float, now: datetime, at_before: float, before: datetime) -> bool:
        passed = at - at_before
        jumped = abs((now - before).total_seconds() - passed)
        return passed > self._silence_s or jumped > self._length_s / 4  # less ends no lease that is renewed

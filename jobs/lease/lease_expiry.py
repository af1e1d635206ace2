"""Decide when an expired lease means that its worker is gone, and not that nobody could renew it.

A lease expires by the job store's clock. Expiry alone proves little while the store was away, because nobody
could renew, or after its clock was set. Lease holders then get the time to renew, and lose nothing. A worker
that is gone does not renew, and is noticed one lease later.
"""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from jobs.ids import JobId

_FAR = 3  # lease lengths: a lease that ends later was written before the store's clock was set back


def since_boot() -> float:
    """Return the seconds since boot, including sleep: a clock that nobody sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseMonitor:
    """Decides for one program which leases have really expired, from the times of its writes to the store."""

    def __init__(self, length: timedelta, clock: Callable[[], float] = since_boot) -> None:
        """Let holders renew for one lease `length` after half a length without a successful write."""
        self._length_s = length.total_seconds()
        self._silence_s = self._length_s / 2  # in a longer one, a lease could end that nobody could renew
        self._clock = clock
        self._latest: tuple[float, datetime] | None = None
        self._fair_from = 0.0
        # Leases that end too late: their end, and when it was first seen.
        self._far: dict[JobId, tuple[datetime, float]] = {}
        self._lock = threading.Lock()

    def note_write(self, now: datetime) -> None:
        """Note that the store has accepted a write, and the store's time.

        The first write, a write after a long silence, and a write after a clock was set each begin a period
        in which no lease counts as expired. Successful reads prove nothing: a store without memory, or a
        replica, answers them but lets nobody renew.
        """
        with self._lock:
            self._latest = (self._note_clocks(now), now)

    def may_expire(self, now: datetime) -> bool:
        """True if lease holders have had the time to renew."""
        with self._lock:
            return self._note_clocks(now) >= self._fair_from

    def find_expired(self, leases: Mapping[JobId, datetime], now: datetime) -> dict[JobId, datetime]:
        """Return the leases whose worker is gone, each with its end.

        They include leases that end far in the future but were not rewritten for three lease lengths: those
        date from before the store's clock was set back.
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
        """Return the local time, and begin a period without expiry if either clock has jumped."""
        at = self._clock()
        if self._latest is None or self._has_irregular_clock(at, now, *self._latest):
            self._fair_from = at + self._length_s
        return at

    def _has_irregular_clock(self, at: float, now: datetime, at_before: float, before: datetime) -> bool:
        passed = at - at_before
        jumped = abs((now - before).total_seconds() - passed)
        # A smaller jump ends no lease that is renewed.
        return passed > self._silence_s or jumped > self._length_s / 4

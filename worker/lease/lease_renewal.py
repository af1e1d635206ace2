"""Keeping a lease while something is done that takes its time and reports nothing."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from jobs.errors import LeaseLost, StoreUnavailable
from jobs.lease.lease_expiry import since_boot
from telemetry.logging import logger

log = logger(__name__)

_MARGIN = 0.1  # of a lease: what is done once it is asked for takes its time too
_LOOK_S = 0.05
_PATIENCE_S = 300.0


class Stopped(Exception):
    """The worker is to end: who has the job next sees to what is left to do."""


@dataclass
class RenewedLease:
    """A lease that a thread renews."""

    renew_once: Callable[[], timedelta]  # renews it; returns how long it is then
    stopped: threading.Event = field(default_factory=threading.Event)  # the worker is to end
    _until: float = 0.0
    _short: float = 0.0  # with less to go than that, nothing is begun
    _lost: LeaseLost | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)

    def require(self) -> timedelta:
        """Return how long the job is certainly held, after a while if nobody can say so now.

        Raises:
            LeaseLost: it is another's.
            StoreUnavailable: nobody could say so for minutes.
            Stopped: the worker is to end.
        """
        deadline = time.monotonic() + _PATIENCE_S
        self._require_not_stopped()
        while (left := self._until - since_boot()) <= self._short:
            if self._lost is not None:
                raise self._lost
            if time.monotonic() > deadline:
                raise StoreUnavailable(TimeoutError("the lease could not be renewed"))
            time.sleep(_LOOK_S)
            self._require_not_stopped()
        return timedelta(seconds=left)

    def _require_not_stopped(self) -> None:
        if self.stopped.is_set():
            raise Stopped

    def renew(self) -> None:
        asked_at = since_boot()
        length = self.renew_once().total_seconds()
        self._until, self._short = asked_at + length * (1 - _MARGIN), length * _MARGIN

    def run(self, every_s: float) -> None:
        while not self._stopping.wait(every_s):
            try:
                self.renew()
            except LeaseLost as error:
                self._lost, self._until = error, -math.inf
                return
            except StoreUnavailable as error:
                log.warning("job_store_away", message=error.message)

    def stop(self) -> None:
        self._stopping.set()


@contextmanager
def renew_lease(
    renew_once: Callable[[], timedelta], length: timedelta, stopped: threading.Event | None = None
) -> Iterator[RenewedLease]:
    """Renew a lease of this `length` by `keep`, at once and then again and again while the block runs.

    Once `stopped` is set, nothing more is begun under it.

    Raises:
        LeaseLost: it is another's already.
        StoreUnavailable: nobody can say so.
    """
    lease = RenewedLease(renew_once, stopped or threading.Event())
    lease.renew()
    thread = threading.Thread(target=lease.run, args=(length.total_seconds() / 4,), name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        lease.stop()
        thread.join()

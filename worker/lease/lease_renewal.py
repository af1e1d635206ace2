"""Renew a lease in the background during work that takes time and reports nothing."""

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

_MARGIN = 0.1  # share of a lease, kept for the work done right after it was checked
_LOOK_S = 0.05
_PATIENCE_S = 300.0


class Stopped(Exception):
    """The worker must stop; the next holder of the job does the rest."""


@dataclass
class RenewedLease:
    """A lease that a thread renews."""

    renew_once: Callable[[], timedelta]  # renews the lease, and returns how long it lasts from then
    stopped: threading.Event = field(default_factory=threading.Event)  # set when the worker is to stop
    _until: float = 0.0
    _short: float = 0.0  # with less than so many seconds left, nothing is begun
    _lost: LeaseLost | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)

    def require(self) -> timedelta:
        """Return how long the job is certainly held; wait if that is unknown for now.

        Raises:
            LeaseLost: another worker holds the job.
            StoreUnavailable: the job store could not be reached for minutes.
            Stopped: the worker is to stop.
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
    """Renew a lease of this `length` at once and then regularly while the block runs.

    Once `stopped` is set, the lease permits nothing more.

    Raises:
        LeaseLost: another worker holds the job already.
        StoreUnavailable: the job store cannot be reached.
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

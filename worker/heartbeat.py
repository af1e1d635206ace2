"""The worker's background threads: one announces that it is alive, one looks for forgotten jobs."""

import os
import socket
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from exporter.errors import StorageError
from exporter.version import __version__
from jobs.control.control import enqueue_lost
from jobs.errors import StoreUnavailable
from jobs.fleet.roster import Roster, WorkerNotice
from jobs.ids import JobId
from jobs.lease.leases import release_expired
from jobs.queue import enqueue_for_targets
from telemetry.logging import logger
from worker.lease.lease_renewal import Stopped
from worker.machine.gpus import list_gpus
from worker.machine.liveness import LivenessFile
from worker.machine.versions import installed_versions
from worker.tasks import Runner

log = logger(__name__)

_MISSED_BEATS = 3  # a worker that misses so many counts as dead
_LOOK = timedelta(seconds=1)  # between two looks for orphaned jobs


class PeriodicThread:
    """A thread that calls `action` every `interval` until stopped; it logs errors and continues."""

    def __init__(self, name: str, interval: timedelta, action: Callable[[], None]) -> None:
        """Create the thread without starting it."""
        self._interval_s = interval.total_seconds()
        self._action = action
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._action()
            except StoreUnavailable as error:
                log.warning("job_store_away", message=error.message)
            except Exception:
                log.exception("background_failed", thread=self._thread.name)
            self._stopping.wait(self._interval_s)


class Heartbeat:
    """Announces the worker while it lives; a worker that misses some beats counts as dead."""

    def __init__(
        self,
        roster: Roster,
        runner: Runner,
        interval: timedelta,
        started_at: datetime,
        alive_file: Path | None = None,
    ) -> None:
        """Announce `runner`'s worker every `interval`, and write each beat to `alive_file` if given."""
        self._liveness_file = LivenessFile(alive_file, interval)
        self._roster = roster
        self._runner = runner
        self._lifetime = interval * _MISSED_BEATS
        self._notice = _describe_worker(runner, started_at)
        self._thread = PeriodicThread("heartbeat", interval, self._beat)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Withdraw the worker; if the store is away, its announcement expires by itself."""
        self._thread.stop()
        try:
            self._roster.withdraw(self._notice.id)
        except StoreUnavailable as error:
            log.warning("job_store_away", message=error.message)

    def _beat(self) -> None:
        now = {"jobs": tuple(self._runner.running), "gpus": list_gpus()}
        busy = self._notice.model_copy(update=now)
        hungry = False
        try:
            self._roster.announce(busy, self._lifetime)
            self._runner.lease_monitor.note_write(self._runner.store.now())
            hungry = not busy.jobs and self._runner.queue.count_waiting(self._notice.served) > 0
        finally:
            self._liveness_file.write(hungry=hungry)


class Sweeper:
    """Searches for jobs that no worker would otherwise run, once per interval for all workers together."""

    def __init__(
        self, roster: Roster, runner: Runner, interval: timedelta, forget: Callable[[], object]
    ) -> None:
        """Take turns with the other workers of the roster; `forget` removes old records."""
        self._roster = roster
        self._forget = forget
        self._runner = runner
        self._interval = interval
        self._thread = PeriodicThread("sweep", interval, self._take_turn)
        # In a thread of its own, because removing what attempts left behind may take minutes.
        self._closing = PeriodicThread("closing", min(interval, _LOOK), self._close)
        self._stopped = threading.Event()
        self._expired: Mapping[JobId, datetime] = {}

    def start(self) -> None:
        self._thread.start()
        self._closing.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.stop()
        self._closing.stop()

    def _take_turn(self) -> None:
        if self._roster.may_sweep(self._runner.worker, self._interval):
            self._expired = release_jobs(self._runner)
            self._forget()

    def _close(self) -> None:
        expired, self._expired = self._expired, {}
        close_orphans(self._runner, expired, self._stopped)


def release_jobs(runner: Runner) -> Mapping[JobId, datetime]:
    """Take jobs from workers that are gone, and enqueue queued jobs that no message names.

    Returns:
        The expired leases by job, among them those of jobs that are to be closed.
    """
    store, queue = runner.store, runner.queue
    ended = runner.lease_monitor.find_expired(store.leases(), store.now())
    for job in release_expired(store, ended):
        log.warning("expired_job_released", job_id=job.id)
        enqueue_for_targets(queue, job)  # the dead worker's message may still count as undelivered
    for job_id in enqueue_lost(store, queue):
        log.warning("job_enqueued_again", job_id=job_id)
    return ended


def close_orphans(runner: Runner, ended: Mapping[JobId, datetime], stopped: threading.Event) -> None:
    """Close those of the given jobs that no worker will run again; retry failures in the next sweep."""
    for job_id, until in ended.items():
        try:
            runner.close(job_id, until, stopped)
        except Stopped:
            return
        except (StorageError, StoreUnavailable) as error:
            log.warning("job_not_closed", job_id=job_id, message=error.message)


def _describe_worker(runner: Runner, started_at: datetime) -> WorkerNotice:
    """Return this worker's notice; versions of packages are read without importing them."""
    machine = runner.machine
    return WorkerNotice(
        id=runner.worker,
        host=socket.gethostname(),
        pid=os.getpid(),
        device=machine.device,
        targets=machine.targets,
        routes=machine.routes,
        architecture=machine.architecture,
        memory=machine.memory,
        versions={"slipway": __version__, **installed_versions()},
        started_at=started_at,
    )

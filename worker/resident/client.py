"""The resident process as its worker sees it: see `worker.resident.server`."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from exporter.verify.runner_process import RUNNER_ENVIRONMENT
from telemetry.logging import logger
from worker.resident.order import EVERYTHING, READY, Order

log = logger(__name__)

OOM_SCORE = "500"  # of at most 1000: it and what it forks are killed before the worker
_IMPORTING_S = 30.0  # an attempt waits for the process to have imported, as it would import itself
_STARTING_S = 120.0  # until it has imported, on a busy machine; longer, and the process hangs
_FORK_S = 15.0  # from an order until its guard is there; longer, and the process hangs
_ENDING_S = 2.0  # of a process for one job, which has nothing left to do
_MOST_GROWTH = 1.25  # of its memory, since it was ready
_MOST_FAILURES = 3  # in a row; then attempts start by themselves as long as the worker lives
_KILLED = 128 + signal.SIGKILL
_COMMAND = ("env", *RUNNER_ENVIRONMENT, sys.executable, "-P", "-m", "worker.resident.server")


class ForkedGuard:
    """A guard that the resident process forked, used as the `subprocess.Popen` of a guard is."""

    def __init__(self, channel: socket.socket, pid: int) -> None:
        self.pid = pid
        self.stdin = channel
        self._status: int | None = None
        self._said = b""
        self._turn = threading.Lock()  # the status is said once, and several threads may ask for it

    def poll(self) -> int | None:
        """Return the exit status; None while the guard lives."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the guard's end and return its status; another thread that waits holds up nobody.

        Raises:
            subprocess.TimeoutExpired: the timeout came first.
        """
        begun = time.monotonic()
        if not self._turn.acquire(timeout=-1 if timeout is None else timeout):
            raise subprocess.TimeoutExpired("guard", timeout or 0.0)
        try:
            if self._status is None:
                spent = time.monotonic() - begun
                self._status = self._hear(None if timeout is None else max(0.0, timeout - spent))
            return self._status
        finally:
            self._turn.release()

    def terminate(self) -> None:
        """Ask the guard to end what it guards."""
        with suppress(OSError):
            self.stdin.shutdown(socket.SHUT_WR)

    def _hear(self, timeout: float | None) -> int:
        self.stdin.settimeout(timeout)
        try:
            while not self._said.endswith(b"\n"):
                if not (more := self.stdin.recv(64)):
                    return _KILLED
                self._said += more
        except (BlockingIOError, TimeoutError):
            raise subprocess.TimeoutExpired("guard", timeout or 0.0) from None
        except ConnectionError:
            return _KILLED
        return int(self._said)


class ResidentProcess:
    """Forks attempts while it can: it is replaced when it has died, grown, or served many.

    Every method may be called from any thread.
    """

    def __init__(
        self, serves: int | None, environment: Mapping[str, str], patience: timedelta = timedelta.max
    ) -> None:
        """Prepare a process that forks `serves` attempts before it is replaced, and sees `environment`.

        If None it serves one job, is not replaced, and imports no more than any attempt needs.

        Nobody waits longer than `patience` for it to have imported, nor for a fork: jobs have leases.
        """
        self._serves = serves
        self._environment = dict(environment)
        self._patience_s = patience.total_seconds()
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None
        self._served = 0
        self._started_at = 0.0
        self._failures = 0
        self._first_bytes = 0  # that it held when it was ready; 0 until then

    def start(self) -> None:
        """Start the process, which then imports for some seconds, if there is none."""
        with self._turn:
            self._replace()

    def stop(self) -> None:
        """End the process; attempts that it forked go on."""
        with self._turn:
            self._end()

    def fork(self, order: Order, environment: Mapping[str, str], log_file: Path) -> ForkedGuard | None:
        """Fork an attempt under a guard; return None if that cannot be, and the attempt did not begin."""
        with self._turn:
            if self._failures >= _MOST_FAILURES:
                return None
            guard, worn = None, True
            try:
                self._ensure_started()
                if not self._await_ready():
                    log.warning("resident_process_not_ready")
                    return None
                guard = self._order(order, environment, log_file)
                self._failures, worn = 0, self._is_worn()
            except OSError as error:
                self._note_failure(error)
            if worn:
                self._end()
                self._replace()
            return guard

    @property
    def pid(self) -> int | None:
        """Number of the process; None if there is none."""
        return self._process.pid if self._process is not None else None

    def _replace(self) -> None:
        """Start the process, unless it is given up; a failure is noted."""
        try:
            if self._failures < _MOST_FAILURES:
                self._ensure_started()
        except OSError as error:
            self._note_failure(error)

    def _note_failure(self, error: OSError) -> None:
        log.warning("resident_process_failed", error=repr(error))
        self._failures += 1

    def _ensure_started(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [*_COMMAND, str(number), *([] if self._serves is None else [EVERYTHING])],
                stdin=subprocess.DEVNULL,
                pass_fds=[number],
                env=self._environment,
                start_new_session=True,  # a signal to the worker's group is the worker's to answer
            )
        self._served, self._first_bytes, self._started_at = 0, 0, time.monotonic()
        with suppress(OSError):
            Path(f"/proc/{self._process.pid}/oom_score_adj").write_text(OOM_SCORE)

    def _end(self) -> None:
        if self._orders is not None:
            self._orders.close()
            self._orders = None
        if self._process is not None:
            if self._serves is None:  # it ends by itself, and what its attempts used is counted as its own
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_ENDING_S)
            self._process.kill()
            self._process.wait()
            self._process = None

    def _await_ready(self) -> bool:
        """Return whether the process has imported; wait for it as long as an import may take.

        Raises:
            ConnectionError: it has ended.
            TimeoutError: it hangs.
        """
        assert self._orders is not None
        if not self._first_bytes:
            if not select.select([self._orders], [], [], min(_IMPORTING_S, self._patience_s))[0]:
                if time.monotonic() - self._started_at > _STARTING_S:
                    raise TimeoutError(f"it has not imported in {_STARTING_S:g} seconds")
                return False
            if not self._orders.recv(len(READY)):
                raise ConnectionError("it ended before it was ready")
            self._first_bytes = self._held_bytes()
        return True

    def _order(self, order: Order, environment: Mapping[str, str], log_file: Path) -> ForkedGuard:
        """Send an order, and wait until the guard is there.

        Raises:
            OSError: there will be none.
        """
        assert self._orders is not None
        ours, theirs = socket.socketpair()
        try:
            with theirs, log_file.open("ab") as output, _as_file(environment) as variables:
                files = [theirs.fileno(), output.fileno(), variables.fileno()]
                socket.send_fds(self._orders, [order.model_dump_json().encode()], files)
            ours.settimeout(min(_FORK_S, self._patience_s))
            pid = _read_number(ours)
        except OSError:
            ours.close()  # a guard that comes too late finds nobody, and ends
            raise
        return ForkedGuard(ours, pid)

    def _is_worn(self) -> bool:
        """Return whether the process has served enough, or holds much more than at first."""
        self._served += 1
        if self._serves is None:
            return False
        return self._served >= self._serves or self._held_bytes() > self._first_bytes * _MOST_GROWTH

    def _held_bytes(self) -> int:
        """Return the resident memory of the process.

        Raises:
            OSError: it has ended.
        """
        assert self._process is not None
        pages = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _as_file(environment: Mapping[str, str]) -> BinaryIO:
    """Return a file in memory to be read from its begin: what passes no process but the attempt's."""
    file = os.fdopen(os.memfd_create("variables"), "w+b", buffering=0)
    file.write(json.dumps(environment).encode())
    file.seek(0)
    return file


def _read_number(channel: socket.socket) -> int:
    said = b""
    while not said.endswith(b"\n"):
        if not (more := channel.recv(1)):
            raise ConnectionError("it ended")
        said += more
    return int(said)

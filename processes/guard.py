"""Run a command and end everything it started: when it exits, on request, or when the parent dies.

    python -m processes.guard GRACE_SECONDS LIMITS COMMAND...

LIMITS are resource limits of the command and all its children, such as `core=0,nofile=1024`, or empty.

Standard input is a pipe that the parent holds open; its end means that the parent is gone, however it ended.
The guard adopts orphans (PR_SET_CHILD_SUBREAPER), so that processes in sessions of their own, such as
torchrun's ranks, cannot escape. It exits with the command's status. If the guard itself is killed, so is the
command, which must end its own children likewise (see exporter.distributed.isolation).
"""

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from exporter.distributed.isolation import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36
_STOPPED = 128 + signal.SIGTERM
_TICK_S = 0.05


def main(arguments: list[str]) -> int:
    """Run the command given after the grace period and the limits; return its exit status."""
    grace_s, limits, command = float(arguments[0]), arguments[1], arguments[2:]

    started: list[subprocess.Popen[bytes]] = []  # kept: a dropped one would take the status of an ended child

    def start() -> int:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509 (no threads)
        started.append(process)
        return process.pid

    try:
        return guard(start, grace_s, limits)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        return 127


def guard(start: Callable[[], int], grace_s: float, limits: str) -> int:
    """Guard the child that `start` starts, whose process number it returns; return its exit status.

    Raises:
        OSError: it could not be started.
    """
    adopt_orphans()
    _set_limits(limits)
    wake = _signals_as_bytes()
    child = start()
    status = _wait_for_end(child, wake)
    if status is None:
        os.kill(child, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while status is None and time.monotonic() < deadline:
            time.sleep(_TICK_S)
            status = reap(child)
        status = _STOPPED
    _kill_descendants()
    return status


def _set_limits(limits: str) -> None:
    """Set the limits for this process and its children, unless lower ones hold already."""
    for name, _, text in (each.partition("=") for each in limits.split(",") if each):
        kind: int = getattr(resource, f"RLIMIT_{name.upper()}")
        _, hard_limit = resource.getrlimit(kind)
        value = int(text) if hard_limit == resource.RLIM_INFINITY else min(int(text), hard_limit)
        resource.setrlimit(kind, (value, value))


def _wait_for_end(child: int, wake: int) -> int | None:
    """Return the child's exit status; None if the guard is asked to stop before that."""
    while True:
        ready, _, _ = select.select([sys.stdin.fileno(), wake], [], [])
        if sys.stdin.fileno() in ready and not os.read(sys.stdin.fileno(), 1):
            return None
        if wake in ready:
            received = os.read(wake, 1024)
            if (status := reap(child)) is not None:
                return status
            if signal.SIGTERM in received or signal.SIGINT in received:
                return None


def reap(child: int) -> int | None:
    """Reap every process that has ended; return the child's exit status if it is among them."""
    status = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            code = os.waitstatus_to_exitcode(wait_status)
            status = code if code >= 0 else 128 - code


def _kill_descendants() -> None:
    """Kill all descendants, again until none is left: an ended process hands its children to the guard."""
    while pids := _descendants(os.getpid()):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap(0)
        time.sleep(_TICK_S / 5)


def _descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, _, rest = stat.read_text().partition(" (")
        except OSError:
            continue
        parent = int(rest.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(pid))
    found, pending = [], [ancestor]
    while pending:
        born = children.get(pending.pop(), [])
        found += born
        pending += born
    return found


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _signals_as_bytes() -> int:
    """Return a descriptor that becomes readable when a signal arrives, and yields the signals' numbers."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, _note)
    return readable


def _note(number: int, frame: object) -> None:
    """Do nothing: the wake-up descriptor carries the signal, but only if a handler is set."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

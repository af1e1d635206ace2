"""Run a command and end everything it started: when it exits, when told to, and when the parent dies.

    python -m processes.guard GRACE_SECONDS LIMITS COMMAND...

LIMITS are what the kernel holds the command and all its children to, as `core=0,nofile=1024`; none if empty.

Standard input is a pipe that the parent holds open; its end means that the parent is gone, however it
went. The guard adopts orphans (PR_SET_CHILD_SUBREAPER), so that processes in sessions of their own, as
torchrun's ranks are, cannot slip away. It exits with the command's status. Should the guard itself be
killed, so is the command; what that has started must see to the same (see exporter.distributed.isolation).
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
from pathlib import Path

from exporter.distributed.isolation import die_with_parent

_PR_SET_CHILD_SUBREAPER = 36
_STOPPED = 128 + signal.SIGTERM
_TICK_S = 0.05


def main(arguments: list[str]) -> int:
    """Run the command given after the grace period and the limits; return its exit status."""
    grace_s, limits, command = float(arguments[0]), arguments[1], arguments[2:]
    adopt_orphans()
    _limit(limits)
    wake = _signals_as_bytes()
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)  # noqa: PLW1509 (no threads)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        return 127
    status = _wait_for_end(child.pid, wake)
    if status is None:
        os.kill(child.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace_s
        while status is None and time.monotonic() < deadline:
            time.sleep(_TICK_S)
            status = reap(child.pid)
        status = _STOPPED
    _kill_descendants()
    return status


def _limit(limits: str) -> None:
    """Hold this process and its children to the limits, as far as it is not held to less already."""
    for name, _, text in (each.partition("=") for each in limits.split(",") if each):
        kind: int = getattr(resource, f"RLIMIT_{name.upper()}")
        _, most = resource.getrlimit(kind)
        value = int(text) if most == resource.RLIM_INFINITY else min(int(text), most)
        resource.setrlimit(kind, (value, value))


def _wait_for_end(child: int, wake: int) -> int | None:
    """The child's exit status; None when the guard is to stop before that."""
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
    """Collect every process that ended; the child's exit status if it is among them."""
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
    """Kill until none is left: an ended process hands its children to the guard."""
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
    """A descriptor that becomes readable, with the signals' numbers, when one arrives."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, _note)
    return readable


def _note(number: int, frame: object) -> None:
    """The wake-up descriptor carries the signal; a handler must exist for it to be written."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

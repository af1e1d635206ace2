"""The first process of a worker's container: `python -m worker.init COMMAND...`.

It holds the container's environment as long as the container lives, and lets no process of its user read it.
It forwards signals to the command, reaps orphans, and exits with the command's status.
"""

import contextlib
import os
import signal
import subprocess
import sys

from processes.guard import adopt_orphans, reap
from processes.privacy import keep_private

# Faults concern this process itself, and the kernel handles a terminal's signals.
_NOT_FORWARDED = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGTRAP,
    signal.SIGABRT,
    signal.SIGSYS,
    signal.SIGTTIN,
    signal.SIGTTOU,
}


def main(command: list[str]) -> int:
    """Run the command to its end; return its exit status."""
    keep_private()
    adopt_orphans()
    forwarded = signal.valid_signals() - _NOT_FORWARDED
    # Blocked signals stay pending until sigwait: none is lost, though a first process ignores unhandled ones.
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    try:
        child = subprocess.Popen(command, preexec_fn=_unblock_signals)  # noqa: PLW1509 (no threads)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        return 127
    while True:
        if (number := signal.sigwait(forwarded)) != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)
        elif (status := reap(child.pid)) is not None:
            return status


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The first process of a worker's container: `python -m worker.init COMMAND...`.

It holds the container's environment as long as the container lives, and lets nothing of its user read it. It
passes signals on to the command, collects orphans that ended, and exits with the command's status.
"""

import contextlib
import os
import signal
import subprocess
import sys

from processes.guard import adopt_orphans, reap
from processes.privacy import keep_private

# Faults are this process' own, and a terminal's are the kernel's to deal with.
_OURS = {
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
    awaited = signal.valid_signals() - _OURS
    # Blocked, they wait until asked for: none is lost, and a first process ignores no other.
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    try:
        child = subprocess.Popen(command, preexec_fn=_unblock_signals)  # noqa: PLW1509 (no threads)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error}\n")
        return 127
    while True:
        if (number := signal.sigwait(awaited)) != signal.SIGCHLD:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child.pid, number)
        elif (status := reap(child.pid)) is not None:
            return status


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

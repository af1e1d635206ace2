"""A child process that ends with all its descendants: by itself, on request, or with this process."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

from processes.confinement import Confinement, format_limits
from processes.log_end import read_log_end
from processes.settings import inherited_environment

# From the end of the grace period until the guard itself is killed, which should have exited by then.
_MARGIN_S = 2.0


class Closable(Protocol):
    """A pipe or a socket."""

    def close(self) -> None: ...


class Guard(Protocol):
    """The guard as the process sees it that asked for it; a `subprocess.Popen` is one."""

    @property
    def stdin(self) -> Closable | None: ...

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def terminate(self) -> None: ...


@dataclass(frozen=True)
class GuardedProcess:
    """A command under `processes.guard`, in a session of its own, writing to a log file."""

    guard: Guard
    grace: timedelta
    log: Path

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        log: Path,
        grace: timedelta,
        environment: Mapping[str, str | None] | None = None,
        confinement: Confinement | None = None,
    ) -> "GuardedProcess":
        """Start `command`; when stopped it has `grace` to exit before all its descendants are killed.

        Without a `confinement` it sees this process's whole environment. The variables of `environment`
        replace inherited ones, and None removes one.
        """
        limits = format_limits(confinement.limits) if confinement else ""
        guarded = [
            sys.executable,
            "-P",
            "-m",
            "processes.guard",
            str(grace.total_seconds()),
            limits,
            *command,
        ]
        given = environment or {}
        with log.open("ab") as output:
            guard = subprocess.Popen(
                guarded,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=inherited_environment(given, confinement.permits)
                if confinement
                else inherited_environment(given),
                start_new_session=True,
            )
        return cls(guard, grace, log)

    def exit_status(self) -> int | None:
        """Return the exit status, 128 + n if signal n ended the command; None while it runs."""
        return self.guard.poll()

    def wait(self, timeout: timedelta | None = None) -> int | None:
        """Wait for the end and return the exit status; None if the timeout came first."""
        try:
            return self.guard.wait(timeout.total_seconds() if timeout is not None else None)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """End the command and everything it started; return when all of it is gone."""
        if self.guard.poll() is None:
            self.guard.terminate()
            if self.wait(self.grace + timedelta(seconds=_MARGIN_S)) is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.guard.pid, signal.SIGKILL)
                self.guard.wait()
        if self.guard.stdin is not None:
            self.guard.stdin.close()

    def last_lines(self, count: int) -> str:
        """Return the last lines of the log."""
        return "\n".join(read_log_end(self.log).splitlines()[-count:])

"""The programs of a Slipway under test, each a process that can be killed on its own."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from processes.settings import inherited_environment

_PR_SET_PDEATHSIG = 1
_END_S = 15.0


def _die_with_us() -> None:
    """End the program when the test run is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Program:
    """A command that can be started, killed and started again; its output goes to one log.

    No guard stands above it, as none does in production: what it leaves behind is seen.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=inherited_environment(self.environment),
                start_new_session=True,
                preexec_fn=_die_with_us,  # noqa: PLW1509 (one call of the kernel)
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the program without a chance to clean up."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Stop the program as an operator would: ask it first."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self.kill()


def python(*arguments: str) -> list[str]:
    return [sys.executable, "-m", *arguments]


def wait_until(what: str, condition: Callable[[], object], seconds: float, log: Path | None = None) -> None:
    """Wait until `condition()` is true; fail with an AssertionError that says what was waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log else ""
            raise AssertionError(f"{what}: not within {seconds:g} s\n{tail}")
        time.sleep(0.05)

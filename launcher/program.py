"""Keep one program running: start it again when it ends by itself, but not for ever."""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from launcher.errors import LaunchFailed
from processes.guarded_process import GuardedProcess

_MAX_RESTARTS = 5  # within a minute
_WINDOW_S = 60.0
_FIRST_PAUSE_S = 1.0  # before the second start within a minute; twice as long before each further one
_LOG_LINES = 15


class Program:
    """A program of the stack, which ends with this process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        grace: timedelta,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the program."""
        self.name = name
        self.log = log
        self._command = command
        self._grace = grace
        self._environment = environment
        self._ends: deque[float] = deque()  # when it ended by itself, within a minute
        self._restart_at: float | None = None
        self.process = self._start()

    def check(self) -> None:
        """Raise LaunchFailed if the program has ended."""
        if (status := self.process.exit_status()) is not None:
            raise self._failure(f"ended with exit status {status}")

    def restart_if_ended(self, now: float) -> str | None:
        """Start the program again once it has ended and a pause is over; return what to tell of its end.

        Raises:
            LaunchFailed: it ended by itself too often.
        """
        if (status := self.process.exit_status()) is None:
            return None
        told = None
        if self._restart_at is None:
            pause_s = self._record_end(now, status)
            self._restart_at = now + pause_s
            told = f"{self.name} ended with exit status {status}, and is started again in {pause_s:.0f} s"
        if now >= self._restart_at:
            self.process.stop()
            self.process = self._start()
            self._restart_at = None
        return told

    def stop(self) -> None:
        """End the program and everything it started."""
        self.process.stop()

    def _start(self) -> GuardedProcess:
        return GuardedProcess.start(
            self._command, log=self.log, grace=self._grace, environment=self._environment
        )

    def _record_end(self, now: float, status: int) -> float:
        """Return the pause before the next start."""
        while self._ends and self._ends[0] < now - _WINDOW_S:
            self._ends.popleft()
        earlier = len(self._ends)
        if earlier == _MAX_RESTARTS:
            raise self._failure(
                f"ended {earlier + 1} times within a minute, the last time with exit status {status}"
            )
        self._ends.append(now)
        return _FIRST_PAUSE_S * 2.0 ** (earlier - 1) if earlier else 0.0

    def _failure(self, ending: str) -> LaunchFailed:
        return LaunchFailed(
            f"{self.name} {ending}; its log ends:\n{self.process.last_lines(_LOG_LINES)}", where=str(self.log)
        )

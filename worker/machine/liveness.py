"""The liveness file that a worker writes at every beat, and how a probe judges it."""

import time
from datetime import timedelta
from pathlib import Path

from pydantic import ValidationError

from exporter.spec import Frozen

_MISSED_BEATS = 6


class Beat(Frozen):
    """The latest beat of a worker; an outage of the job store does not make a worker unhealthy."""

    at: float  # Unix seconds
    beat_s: float  # seconds between two beats
    hungry_s: float = 0.0  # seconds it has been idle while messages waited for it

    def problem(self, now: float, longest_hunger: timedelta) -> str | None:
        """Return what is wrong, or None.

        A worker that is idle for longer than `longest_hunger` beside a queue that holds messages receives
        none.
        """
        if now - self.at > _MISSED_BEATS * self.beat_s + 5:
            return f"the latest beat was {now - self.at:.0f} s ago"
        if self.hungry_s > longest_hunger.total_seconds():
            return f"it has been idle for {self.hungry_s:.0f} s beside a queue that holds messages"
        return None


class LivenessFile:
    """Writes a worker's liveness file."""

    def __init__(self, path: Path | None, beat: timedelta) -> None:
        """Write no file where `path` is None."""
        self._path = path
        self._beat_s = beat.total_seconds()
        self._hungry_since: float | None = None

    def write(self, *, hungry: bool) -> None:
        """Write a beat; `hungry` says that the worker is idle although messages wait."""
        if not hungry:
            self._hungry_since = None
        elif self._hungry_since is None:
            self._hungry_since = time.monotonic()
        if self._path is not None:
            hungry_s = time.monotonic() - self._hungry_since if self._hungry_since is not None else 0.0
            beat = Beat(at=time.time(), beat_s=self._beat_s, hungry_s=hungry_s)
            self._path.parent.mkdir(parents=True, exist_ok=True)
            partial = self._path.with_suffix(".partial")
            partial.write_text(beat.model_dump_json())
            partial.rename(self._path)


def find_problem(path: Path, now: float, longest_hunger: timedelta) -> str | None:
    """Return what is wrong with the worker that writes this file, or None."""
    try:
        return Beat.model_validate_json(path.read_text()).problem(now, longest_hunger)
    except OSError:
        return f"it has not written {path}"
    except ValidationError:
        return f"{path} is not a worker's liveness file"

"""Stop an attempt at a chosen point, so that something can be broken there."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from exporter.stages import OnStage, Stage, StageEvent

_LONGEST_S = 150.0
_LOOK_S = 0.02


class Hold(BaseModel):
    """The point at which attempts are to stop."""

    model_config = ConfigDict(frozen=True)

    stage: Stage
    kind: str = "started"  # or: progress, half of it being done; finished
    attempts: tuple[int, ...] = (1,)
    tower: str | None = None  # as events name it; any

    def meets(self, event: StageEvent, attempt: int) -> bool:
        halfway = event.kind != "progress" or (event.fraction or 0.0) >= 0.5
        if self.tower not in (None, event.tower):
            return False
        return attempt in self.attempts and (event.stage, event.kind) == (self.stage, self.kind) and halfway


class Held(BaseModel):
    """The process that has stopped at the point."""

    attempt: int
    pid: int
    parent: int


@dataclass(frozen=True)
class HoldFolder:
    """The files by which the harness and the ranks communicate."""

    path: Path

    def ask(self, hold: Hold) -> None:
        (self.path / "held.json").unlink(missing_ok=True)
        _write(self.path / "hold.json", hold)

    def release(self) -> None:
        (self.path / "hold.json").unlink(missing_ok=True)
        (self.path / "held.json").unlink(missing_ok=True)

    def held(self) -> Held | None:
        try:
            return Held.model_validate_json((self.path / "held.json").read_text())
        except FileNotFoundError:
            return None

    def wanted(self) -> Hold | None:
        try:
            return Hold.model_validate_json((self.path / "hold.json").read_text())
        except FileNotFoundError:
            return None

    def watching(self, attempt: int) -> Callable[[OnStage], OnStage]:
        """Return a wrapper that makes a rank's report function stop at the point."""

        def watched(report: OnStage) -> OnStage:
            def stop_there(event: StageEvent) -> None:
                report(event)
                hold = self.wanted()
                if hold is not None and hold.meets(event, attempt):
                    self._stay(hold, attempt)

            return stop_there

        return watched

    def _stay(self, hold: Hold, attempt: int) -> None:
        _write(self.path / "held.json", Held(attempt=attempt, pid=os.getpid(), parent=os.getppid()))
        deadline = time.monotonic() + _LONGEST_S
        while self.wanted() == hold and time.monotonic() < deadline:
            time.sleep(_LOOK_S)


def _write(path: Path, value: BaseModel) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(value.model_dump_json())
    partial.rename(path)

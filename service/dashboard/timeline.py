"""A tower's stages as bars on one time axis: where each began and how long it took."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from exporter.stages import Stage
from jobs.model import TowerProgress, TowerState

WIDTH = 1000  # of a chart, in units of its view box
_LEAST_WIDTH = 6  # so that a stage of milliseconds can be seen


class BarState(StrEnum):
    """The state of a stage."""

    DONE = "done"
    RUNNING = "running"
    STOPPED = "stopped"  # started and not finished: it failed, or the attempt was ended
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class StageBar:
    """The bar of one stage: its seconds if it is done, and its position on the axis."""

    stage: Stage
    state: BarState
    seconds: float | None
    x: float
    width: float


def timeline(tower: TowerProgress, longest: float) -> tuple[StageBar, ...]:
    """Return a tower's stages in order; `longest` seconds fill the width, so that towers can be compared."""
    bars, elapsed = [], 0.0
    scale = WIDTH / longest if longest > 0 else 0.0
    for stage in tower.stages:
        duration = tower.stage_seconds.get(stage)
        width = max((duration or 0.0) * scale, _LEAST_WIDTH)
        x = min(elapsed * scale, WIDTH - width)
        state = _state(tower, stage)
        bars.append(
            StageBar(stage=stage, state=state, seconds=duration, x=round(x, 1), width=round(width, 1))
        )
        elapsed += duration or 0.0
    return tuple(bars)


def longest_of(towers: Sequence[TowerProgress]) -> float:
    """Return the seconds of the tower that has taken the longest."""
    return max((sum(tower.stage_seconds.values()) for tower in towers), default=0.0)


def _state(tower: TowerProgress, stage: Stage) -> BarState:
    if stage in tower.stage_seconds:
        return BarState.DONE
    if stage is not tower.stage:
        return BarState.WAITING
    return BarState.RUNNING if tower.state is TowerState.RUNNING else BarState.STOPPED

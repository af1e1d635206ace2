"""A tower's stages as bars on one time axis: where each began and how long it took."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from exporter.stages import Stage
from jobs.model import Job, TowerProgress, TowerState

WIDTH = 1000  # of a chart, in units of its view box
START_UP = "start-up"  # of the attempt: its processes, their imports, and pauses between the stages
_CLOCKS_S = 0.5  # by which a stage may seem to begin before its attempt: times are noted by several processes
_LEAST_WIDTH = 6  # so that a stage of milliseconds can be seen


class BarState(StrEnum):
    """The state of a stage."""

    DONE = "done"
    RUNNING = "running"
    FAILED = "failed"
    STOPPED = "stopped"  # started and not finished: the job was cancelled, or the attempt ended
    WAITING = "waiting"


@dataclass(frozen=True, kw_only=True)
class StageBar:
    """The bar of one stage, or of the start-up: its seconds if it is done, and its position on the axis."""

    stage: Stage | None  # None: the start-up
    state: BarState
    seconds: float | None
    x: float
    width: float

    @property
    def name(self) -> str:
        return self.stage or START_UP


@dataclass(frozen=True, kw_only=True)
class TimedTower:
    """A tower, and the seconds of its attempt that belong to no stage; None if they are not known."""

    tower: TowerProgress
    start_up: float | None

    @classmethod
    def of(cls, tower: TowerProgress, started_at: datetime | None) -> "TimedTower":
        """Take the time of an attempt that began at `started_at`."""
        begun, seconds = tower.stage_started_at, tower.stage_seconds
        if started_at is None or begun is None:
            return cls(tower=tower, start_up=None)
        before = sum(each for stage, each in seconds.items() if stage is not tower.stage)
        rest = (begun - started_at).total_seconds() - before
        if rest < -_CLOCKS_S:
            return cls(tower=tower, start_up=None)  # of two clocks
        return cls(tower=tower, start_up=max(rest, 0.0))

    @property
    def seconds(self) -> float:
        return (self.start_up or 0.0) + sum(self.tower.stage_seconds.values())


def time_towers(job: Job) -> tuple[TimedTower, ...]:
    """Return the job's towers; those of earlier targets ran before the latest attempt."""
    return tuple(
        TimedTower.of(tower, job.started_at if job.is_current(tower) else None) for tower in job.towers
    )


def timeline(timed: TimedTower, longest: float) -> tuple[StageBar, ...]:
    """Return a tower's stages in order; `longest` seconds fill the width, so that towers can be compared."""
    bars, elapsed = [], 0.0
    durations: list[tuple[Stage | None, float | None]] = [
        (stage, timed.tower.stage_seconds.get(stage)) for stage in timed.tower.stages
    ]
    if timed.start_up is not None:
        durations.insert(0, (None, timed.start_up))
    scale = WIDTH / longest if longest > 0 else 0.0
    for stage, duration in durations:
        width = max((duration or 0.0) * scale, _LEAST_WIDTH)
        x = min(elapsed * scale, WIDTH - width)
        state = BarState.DONE if stage is None else _state(timed.tower, stage)
        bars.append(
            StageBar(stage=stage, state=state, seconds=duration, x=round(x, 1), width=round(width, 1))
        )
        elapsed += duration or 0.0
    return tuple(bars)


def longest_of(towers: Iterable[TimedTower]) -> float:
    """Return the seconds of the tower that has taken the longest."""
    return max((each.seconds for each in towers), default=0.0)


def _state(tower: TowerProgress, stage: Stage) -> BarState:
    if stage in tower.stage_seconds:
        return BarState.DONE
    if stage is not tower.stage:
        return BarState.WAITING
    if tower.state is TowerState.RUNNING:
        return BarState.RUNNING
    return BarState.FAILED if tower.state is TowerState.FAILED else BarState.STOPPED

"""The named steps of an export, and the events by which a rank reports them."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

from pydantic import BaseModel, ConfigDict

from slipway.rest.names import Stage as Stage  # the exporter imports it from here

Kind = Literal["started", "progress", "noted", "finished", "failed"]


class StageEvent(BaseModel):
    """One line of a rank's report: the start, progress, end or failure of one stage of a tower, or a note."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tower: str
    stage: Stage
    kind: Kind
    at: float  # Unix seconds
    seconds: float | None = None  # with "finished" and "failed": how long the stage took
    fraction: float | None = None  # with "progress": 0 to 1 of this stage
    detail: str = ""  # with "progress": what is being done, for people; with "failed": the error's class;
    # with "noted": whether compiled code came from the cache


OnStage = Callable[[StageEvent], None]  # receives the events of an export as they happen

Progress = Callable[[float | None, str], None]  # fraction of the stage if it is known, what is being done

_INTERVAL_S = 0.5  # seconds between two reports that pass


def throttle_progress(progress: Progress) -> Progress:
    """Return a callback that passes on at most one report in half a second and drops the others."""
    reported_at = 0.0

    def report(fraction: float | None, detail: str) -> None:
        nonlocal reported_at
        if (now := time.monotonic()) - reported_at >= _INTERVAL_S:
            reported_at = now
            progress(fraction, detail)

    return report


def no_progress(fraction: float | None, detail: str) -> None:
    """Drop the progress: the callback of callers that do not report it."""


Within = Callable[[Stage], AbstractContextManager[None]]  # entered around a stage, such as its time limit


def _unlimited(_: Stage) -> AbstractContextManager[None]:
    return nullcontext()


class StageClock:
    """Reports the stages of one tower and records how many seconds each of them took."""

    def __init__(self, tower: str, on_stage: OnStage, within: Within = _unlimited) -> None:
        """Send events to `on_stage`, and run the body of every stage inside `within(stage)`."""
        self.tower = tower
        self._within = within
        self.seconds: dict[str, float] = {}
        self._on_stage = on_stage

    def note(self, stage: Stage, detail: str) -> None:
        """Send a remark for people about this export that is no progress."""
        self._on_stage(StageEvent(tower=self.tower, stage=stage, kind="noted", at=time.time(), detail=detail))

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[Progress]:
        """Run a stage and report its start and end; the yielded callback reports progress within it.

        A stage that raises is reported as failed.
        """
        begun = time.monotonic()

        def emit(kind: Kind, **values: float | str | None) -> None:
            self._on_stage(
                StageEvent.model_validate(
                    {"tower": self.tower, "stage": stage, "kind": kind, "at": time.time(), **values}
                )
            )

        emit("started")
        try:
            with self._within(stage):
                yield lambda fraction, detail: emit("progress", fraction=fraction, detail=detail)
        except Exception as error:
            emit("failed", seconds=round(time.monotonic() - begun, 3), detail=type(error).__name__)
            raise
        self.seconds[stage] = round(time.monotonic() - begun, 3)
        emit("finished", seconds=self.seconds[stage])

"""The named steps of an export, and the events by which a rank reports them."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Stage(StrEnum):
    """A step inside one tower's export, in the order they run."""

    TABLES = "tables"  # this rank's rows of the tables, written, tried and sent; only where sharded
    CONFIG = "config"  # read the pipeline config, choose the view, plan the dims
    CHECKPOINT = "checkpoint"  # read the weights, strictly
    ROWS = "rows"  # read rows and encode them
    TRACE = "trace"  # torch.export
    COMPILE = "compile"  # AOTInductor
    VERIFY = "verify"  # package against eager, in a fresh process
    ITEMS = "items"  # item vectors and their index; only where asked for
    PUBLISH = "publish"  # upload, check digests; the manifest goes up when all towers are there


Kind = Literal["started", "progress", "noted", "finished", "failed"]


class StageEvent(BaseModel):
    """One line of a rank's report: a tower entered, moved within, finished, or failed in a stage."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tower: str
    stage: Stage
    kind: Kind
    at: float  # Unix seconds
    seconds: float | None = None  # with "finished" and "failed": how long the stage took
    fraction: float | None = None  # with "progress": 0 to 1 of this stage
    detail: str = ""  # with "progress" what is being done, for people; with "failed" the error's class;
    # with "noted" what became of code of the cache


OnStage = Callable[[StageEvent], None]  # receives the events of an export as they happen

Progress = Callable[[float | None, str], None]  # fraction of the stage if it is known, what is being done

_SELDOM_S = 0.5


def seldom(progress: Progress) -> Progress:
    """The same, no oftener than people can read."""
    told_at = 0.0

    def tell(fraction: float | None, detail: str) -> None:
        nonlocal told_at
        if (now := time.monotonic()) - told_at >= _SELDOM_S:
            told_at = now
            progress(fraction, detail)

    return tell


def no_progress(fraction: float | None, detail: str) -> None:
    """Drop it: for callers that do not report progress."""


Within = Callable[[Stage], AbstractContextManager[None]]


def _unlimited(_: Stage) -> AbstractContextManager[None]:
    return nullcontext()


class StageClock:
    """Reports the stages of one tower and keeps the seconds of each."""

    def __init__(self, tower: str, on_stage: OnStage, within: Within = _unlimited) -> None:
        """Report to `on_stage`; what is done in a stage happens inside of `within(stage)`."""
        self.tower = tower
        self._within = within
        self.seconds: dict[str, float] = {}
        self._on_stage = on_stage

    def note(self, stage: Stage, detail: str) -> None:
        """Report what people will want to know of this export, besides how far it is."""
        self._on_stage(StageEvent(tower=self.tower, stage=stage, kind="noted", at=time.time(), detail=detail))

    @contextmanager
    def stage(self, stage: Stage) -> Iterator[Progress]:
        """Enter a stage; inside it, call what is yielded to report progress.

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

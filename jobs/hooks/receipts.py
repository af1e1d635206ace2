"""Receipts of training events: what was started for them, so that a repeated event starts nothing again."""

from datetime import datetime
from typing import Self

from pydantic import Field

from exporter.outcome import Failure
from exporter.spec import Frozen
from jobs.ids import JobId


class Start(Frozen):
    """The job that one trigger starts for an event: its id, and whether it was started, or why not."""

    trigger: str
    job: JobId  # chosen before the start, so that a second start finds the first one's job
    started: bool = False
    failure: Failure | None = None


class Receipt(Frozen):
    """One event, and the start of each trigger that it matched."""

    source: str
    id: str
    starts: tuple[Start, ...] = Field(min_length=1)

    def merge(self, other: Self) -> Self:
        """Return this receipt with the jobs that `other`, a receipt of the same event, has started."""
        theirs = {start.trigger: start for start in other.starts if start.started}
        return self.model_copy(
            update={"starts": tuple(theirs.get(start.trigger, start) for start in self.starts)}
        )


class Noted(Frozen):
    """The result of a recent event for one trigger."""

    at: datetime
    source: str
    event: str
    job: JobId | None
    failure: Failure | None

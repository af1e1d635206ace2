"""Triggers: rules by which training events start exports. Pure functions."""

from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import AfterValidator, Field, StrictBool

from exporter.storage.uris import NO_RULES, UriRules
from jobs.hooks.templates import ExportTemplate
from jobs.hooks.training import FAILED_STATUSES, TrainingEvent
from jobs.request import PostedBody

TRIGGER_NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"

Pattern = Annotated[
    str,
    Field(min_length=1, max_length=256, description="A pattern: * stands for any characters, ? for one."),
]


def _require_not_failed(status: str) -> str:
    if status.lower() in FAILED_STATUSES:
        raise ValueError(f"{status!r} is a failed training job, which starts nothing")
    return status.lower()


Status = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_require_not_failed)]


class EventMatch(PostedBody):
    """The conditions on an event, all of which it must meet."""

    type: Pattern = "*"
    source: Pattern = "*"
    model: Pattern = "*"
    status: tuple[Status, ...] | None = Field(
        default=("succeeded",),
        min_length=1,
        max_length=16,
        description="Accepted values of `data.status`, in any case. null accepts any status, or none, but "
        "never a failed one.",
    )

    def find_misfits(self, event: TrainingEvent) -> tuple[str, ...]:
        """Return the reasons why the event does not match; empty if it does."""
        values = {"type": event.type, "source": event.source, "data.model": event.model}
        patterns = {"type": self.type, "source": self.source, "data.model": self.model}
        found = [
            f"{name} {value!r} does not match {patterns[name]!r}"
            for name, value in values.items()
            if not fnmatchcase(value, patterns[name])
        ]
        if event.status in FAILED_STATUSES:
            found.append(f"data.status {event.status!r}: a failed training job starts nothing")
        elif self.status is not None and event.status not in self.status:
            found.append(f"data.status {event.status!r} is not one of {', '.join(self.status)}")
        return tuple(found)


class TriggerRule(PostedBody):
    """The part of a trigger that a caller sends: the events that start it, and the export it starts."""

    enabled: StrictBool = True
    when: EventMatch = EventMatch()
    template: ExportTemplate


class Trigger(TriggerRule):
    """A rule with its name and the places its exports may use."""

    name: str
    uris: UriRules = Field(
        default=NO_RULES,
        description="Places that its exports may read and write: those of the API key that put it.",
    )
    created_at: datetime
    updated_at: datetime

    def find_misfits(self, event: TrainingEvent) -> tuple[str, ...]:
        """Return the reasons why the event starts nothing here; empty if it starts an export."""
        disabled = () if self.enabled else ("the trigger is disabled",)
        return disabled + self.when.find_misfits(event)

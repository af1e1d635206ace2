"""The delivery of one event to one receiver: its record, and what each try changes. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from pydantic import Field

from exporter.spec import Frozen
from jobs.events import JobEvent
from slipway.rest.names import DeliveryState as DeliveryState  # stores and views import it from here

# Growing pauses, a day in all: a receiver that is repaired the next morning has missed nothing.
PAUSES = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 30, 120, 600, 1800, 3600, 2 * 3600, 4 * 3600, 6 * 3600, 10 * 3600)
)
JITTER = 0.2  # share of a pause by which it may be longer or shorter

_TRIES_KEPT = 20
_GONE = 410


class Try(Frozen):
    """One try at sending an event, and its result."""

    at: datetime
    seconds: float
    status: int | None = Field(description="The receiver's HTTP status; null if it did not answer.")
    error: str = Field(default="", description="Why the try failed; empty if it was delivered.")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of sending: a status, or an error without one."""

    status: int | None
    error: str = ""
    hopeless: bool = False  # another try cannot succeed

    @property
    def accepted(self) -> bool:
        return self.status is not None and 200 <= self.status < 300

    @property
    def unsubscribes(self) -> bool:
        return self.status == _GONE


class Delivery(Frozen):
    """One event for one receiver; its id is sent as `webhook-id`, the same with every try."""

    id: str
    event: JobEvent
    url: str
    subscription_id: str | None = None  # None: the job's own callback_url
    state: DeliveryState = DeliveryState.WAITING
    attempts: int = 0
    pauses_taken: int = 0  # since it was created or replayed
    tries: tuple[Try, ...] = ()  # the latest tries
    reason: str = ""  # why it was given up or dropped
    next_at: datetime | None
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def last_try(self) -> Try | None:
        return self.tries[-1] if self.tries else None

    def after_try(self, done: Try, answer: Answer, *, pauses: Sequence[timedelta], jitter: float) -> Self:
        """Return this delivery after a try; `jitter`, from -1 to 1, lengthens or shortens the next pause."""
        counted = self.model_copy(
            update={"attempts": self.attempts + 1, "tries": (*self.tries, done)[-_TRIES_KEPT:]}
        )
        if answer.accepted:
            return counted.end(DeliveryState.DELIVERED, "", done.at)
        if answer.unsubscribes:
            return counted.end(
                DeliveryState.DROPPED, "the receiver answered 410 and is unsubscribed", done.at
            )
        if answer.hopeless:
            return counted.end(DeliveryState.GIVEN_UP, answer.error, done.at)
        if self.pauses_taken >= len(pauses):
            return counted.end(
                DeliveryState.GIVEN_UP, f"the last of {counted.attempts} tries failed", done.at
            )
        pause = pauses[self.pauses_taken] * (1 + JITTER * jitter)
        return counted.model_copy(update={"pauses_taken": self.pauses_taken + 1, "next_at": done.at + pause})

    def end(self, state: DeliveryState, reason: str, now: datetime) -> Self:
        return self.model_copy(update={"state": state, "reason": reason, "next_at": None, "ended_at": now})

    def replay(self, now: datetime) -> Self:
        """Return this delivery, due again at once and with all its pauses ahead."""
        anew = {"state": DeliveryState.WAITING, "reason": "", "pauses_taken": 0}
        return self.model_copy(update={**anew, "next_at": now, "ended_at": None})

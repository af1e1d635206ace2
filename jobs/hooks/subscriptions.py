"""Subscriptions: receivers of every job's events, and the event types they asked for."""

from datetime import datetime

from pydantic import Field

from exporter.spec import Frozen
from jobs.events import EventType, OutboxEntry
from jobs.hooks.deliveries import Delivery
from jobs.ids import new_job_id


class Subscription(Frozen):
    """A receiver of the events of all jobs."""

    id: str
    url: str
    events: frozenset[EventType]
    secret: str = Field(repr=False)
    created_at: datetime
    updated_at: datetime


def make_deliveries(
    entry: OutboxEntry, subscriptions: tuple[Subscription, ...], now: datetime
) -> tuple[Delivery, ...]:
    """Return one delivery for the job's own callback and one for each subscription to the event's type."""
    receivers: list[tuple[str, str | None]] = []
    if entry.callback_url:
        receivers.append((entry.callback_url, None))
    receivers += [(each.url, each.id) for each in subscriptions if entry.event.type in each.events]
    return tuple(
        Delivery(
            id=new_job_id(),
            event=entry.event,
            url=url,
            subscription_id=subscription_id,
            next_at=now,
            created_at=now,
        )
        for url, subscription_id in receivers
    )

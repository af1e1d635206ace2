"""Bodies of requests and answers about webhooks, in and out."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from exporter.outcome import Failure
from exporter.spec import Frozen, TowerName
from jobs.events import EventType
from jobs.hooks.deliveries import Delivery, DeliveryState, Try
from jobs.hooks.receipts import Noted, Receipt, Start
from jobs.hooks.redis_book import BookPage
from jobs.hooks.redis_outbox import DeliveryPage
from jobs.hooks.subscriptions import Subscription
from jobs.hooks.training import TrainingEvent
from jobs.hooks.triggers import Trigger
from jobs.ids import JobId
from jobs.request import CallbackUrl, ExportRequest

# At least sixteen bytes in base64 (see jobs.hooks.secret).
_BASE64 = r"([A-Za-z0-9+/]{4}){5,84}([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"
Secret = Annotated[str, Field(pattern=f"^whsec_{_BASE64}$")]


class StartView(Frozen):
    """What one trigger made of an event."""

    trigger: str
    job: JobId | None = Field(description="At /exports/<job>.")
    failure: Failure | None = Field(description="Why it started nothing.")

    @classmethod
    def of(cls, start: Start) -> "StartView":
        return cls(trigger=start.trigger, job=start.job if start.started else None, failure=start.failure)


class EventAnswer(Frozen):
    """What an event came to."""

    id: str
    source: str
    matched: int = Field(description="How many triggers it fits.")
    duplicate: bool = Field(description="It had come before; these are the jobs it started then.")
    starts: tuple[StartView, ...] = ()

    @classmethod
    def of(cls, event: TrainingEvent, receipt: Receipt | None, *, duplicate: bool) -> "EventAnswer":
        starts = receipt.starts if receipt else ()
        return cls(
            id=event.id,
            source=event.source,
            matched=len(starts),
            duplicate=duplicate,
            starts=tuple(StartView.of(start) for start in starts),
        )


class TriggerView(Trigger):
    """A trigger and what came of it of late."""

    latest: tuple[Noted, ...] = Field(description="What it made of the latest events that fitted it.")


class TriggerList(Frozen):
    """Triggers by name."""

    triggers: tuple[Trigger, ...]
    next_cursor: str | None = Field(description="Give it as `cursor` for the page after this one.")

    @classmethod
    def of(cls, page: BookPage[Trigger]) -> "TriggerList":
        return cls(triggers=page.records, next_cursor=page.next)


class TriggerTrial(Frozen):
    """What an event would do."""

    starts: bool = Field(description="An export would be accepted.")
    misfits: tuple[str, ...] = Field(default=(), description="What of the event does not fit the trigger.")
    failure: Failure | None = Field(default=None, description="Why the export would be refused.")
    request: ExportRequest | None = Field(default=None, description="The template, filled.")
    towers: tuple[TowerName, ...] = ()


class SubscriptionRequest(Frozen):
    """Who is to be told, and of what."""

    url: CallbackUrl
    events: tuple[EventType, ...] = Field(default=tuple(EventType), min_length=1, max_length=16)
    secret: Secret | None = Field(
        default=None, description="whsec_ and base64; default: drawn, or the one it has."
    )


class SubscriptionView(Frozen):
    """A subscription without its secret."""

    id: str
    url: str
    events: tuple[EventType, ...]
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, subscription: Subscription) -> "SubscriptionView":
        return cls(
            id=subscription.id,
            url=subscription.url,
            events=tuple(sorted(subscription.events)),
            created_at=subscription.created_at,
            updated_at=subscription.updated_at,
        )


class SubscriptionMade(SubscriptionView):
    """A subscription as it is shown once."""

    secret: str = Field(description="Verify with it; it is not shown again.")


class SubscriptionList(Frozen):
    """Subscriptions, oldest first."""

    subscriptions: tuple[SubscriptionView, ...]
    next_cursor: str | None = Field(description="Give it as `cursor` for the page after this one.")

    @classmethod
    def of(cls, page: BookPage[Subscription]) -> "SubscriptionList":
        shown = tuple(SubscriptionView.of(each) for each in page.records)
        return cls(subscriptions=shown, next_cursor=page.next)


class DeliveryView(Frozen):
    """One event on its way to one receiver."""

    id: str = Field(description="The receiver sees it as webhook-id, the same with every try.")
    event_id: str
    event_type: EventType
    job: JobId
    url: str
    subscription_id: str | None = Field(description="null: the job's own callback_url.")
    state: DeliveryState
    attempts: int
    tries: tuple[Try, ...] = Field(description="The latest ones.")
    last_status: int | None
    last_error: str
    reason: str = Field(description="Why it was given up or dropped.")
    next_at: datetime | None = Field(description="When it is sent next.")
    created_at: datetime
    ended_at: datetime | None

    @classmethod
    def of(cls, delivery: Delivery) -> "DeliveryView":
        last = delivery.last_try
        return cls(
            id=delivery.id,
            event_id=delivery.event.id,
            event_type=delivery.event.type,
            job=delivery.event.data.job,
            url=delivery.url,
            subscription_id=delivery.subscription_id,
            state=delivery.state,
            attempts=delivery.attempts,
            tries=delivery.tries,
            last_status=last.status if last else None,
            last_error=last.error if last else "",
            reason=delivery.reason,
            next_at=delivery.next_at,
            created_at=delivery.created_at,
            ended_at=delivery.ended_at,
        )


class DeliveryList(Frozen):
    """Deliveries, newest first."""

    deliveries: tuple[DeliveryView, ...]
    next_cursor: str | None = Field(description="Give it as `cursor` for the page after this one.")

    @classmethod
    def of(cls, page: DeliveryPage) -> "DeliveryList":
        shown = tuple(DeliveryView.of(each) for each in page.deliveries)
        return cls(deliveries=shown, next_cursor=page.next)

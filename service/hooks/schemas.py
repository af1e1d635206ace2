"""Bodies of requests and answers about webhooks, incoming and outgoing."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from exporter.outcome import Failure
from exporter.spec import Frozen, TowerName
from jobs.events import EventType
from jobs.hooks.deliveries import Delivery, DeliveryState, Try
from jobs.hooks.pages import BookPage, DeliveryPage
from jobs.hooks.receipts import Noted, Receipt, Start
from jobs.hooks.subscriptions import Subscription
from jobs.hooks.training import TrainingEvent
from jobs.hooks.triggers import Trigger
from jobs.ids import JobId
from jobs.request import CallbackUrl, ExportRequest, PostedBody

# At least sixteen bytes in base64 (see jobs.hooks.secret).
_BASE64 = r"([A-Za-z0-9+/]{4}){5,84}([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)"
Secret = Annotated[str, Field(pattern=f"^whsec_{_BASE64}$")]


class StartView(Frozen):
    """The result of one trigger for an event: a job, or the reason why there is none."""

    trigger: str
    job: JobId | None = Field(description="The job that was started; see /exports/<job>.")
    failure: Failure | None = Field(description="Why no job was started.")

    @classmethod
    def of(cls, start: Start) -> "StartView":
        return cls(trigger=start.trigger, job=start.job if start.started else None, failure=start.failure)


class EventAnswer(Frozen):
    """The result of an event: the triggers that it matches, and the jobs that they started."""

    id: str
    source: str
    matched: int = Field(description="Number of triggers that the event matches.")
    duplicate: bool = Field(
        description="Whether the event has been received before; `starts` are then the jobs of that time."
    )
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
    """A trigger with its latest results."""

    latest: tuple[Noted, ...] = Field(description="Results for the latest events that matched it.")


class TriggerList(Frozen):
    """Triggers by name."""

    triggers: tuple[Trigger, ...]
    next_cursor: str | None = Field(description="Give it as `cursor` for the page after this one.")

    @classmethod
    def of(cls, page: BookPage[Trigger]) -> "TriggerList":
        return cls(triggers=page.records, next_cursor=page.next)


class TriggerTrial(Frozen):
    """The result that an event would have with a trigger, without starting an export."""

    starts: bool = Field(description="Whether an export would be accepted.")
    misfits: tuple[str, ...] = Field(
        default=(), description="Reasons why the event does not match the trigger."
    )
    failure: Failure | None = Field(default=None, description="Why the export would be refused.")
    request: ExportRequest | None = Field(
        default=None, description="The trigger's template, filled with the event's data."
    )
    towers: tuple[TowerName, ...] = ()


class SubscriptionRequest(PostedBody):
    """A URL to send events to, and the types of events."""

    url: CallbackUrl
    events: tuple[EventType, ...] = Field(default=tuple(EventType), min_length=1, max_length=16)
    secret: Secret | None = Field(
        default=None,
        description="whsec_ and base64; default: a new random one; on replacement, the one it has.",
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
    """A new subscription with its secret, which is shown only once."""

    secret: str = Field(description="Secret to verify events with; it is not shown again.")


class SubscriptionList(Frozen):
    """Subscriptions, oldest first."""

    subscriptions: tuple[SubscriptionView, ...]
    next_cursor: str | None = Field(description="Give it as `cursor` for the page after this one.")

    @classmethod
    def of(cls, page: BookPage[Subscription]) -> "SubscriptionList":
        views = tuple(SubscriptionView.of(each) for each in page.records)
        return cls(subscriptions=views, next_cursor=page.next)


class DeliveryView(Frozen):
    """One event to be sent to one receiver."""

    id: str = Field(description="The webhook-id that the receiver sees, the same with every try.")
    event_id: str
    event_type: EventType
    job: JobId
    url: str
    subscription_id: str | None = Field(description="null for the job's own callback_url.")
    state: DeliveryState
    attempts: int
    tries: tuple[Try, ...] = Field(description="The latest tries.")
    last_status: int | None
    last_error: str
    reason: str = Field(description="Why the delivery was given up or dropped.")
    next_at: datetime | None = Field(description="When the next try is due.")
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
        views = tuple(DeliveryView.of(each) for each in page.deliveries)
        return cls(deliveries=views, next_cursor=page.next)

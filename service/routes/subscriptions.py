"""Routes for subscriptions: receivers of every job's events."""

from typing import Annotated

from fastapi import APIRouter, Query, status

from jobs.hooks.errors import CallbackRefused, SubscriptionNotFound
from jobs.hooks.secret import new_secret
from jobs.hooks.subscriptions import Subscription
from jobs.ids import new_job_id
from service.access.guard import Admin
from service.audit import record
from service.errors import keyed_responses
from service.hooks.backend import Hooks
from service.hooks.receivers import require_permitted_url
from service.hooks.schemas import (
    SubscriptionList,
    SubscriptionMade,
    SubscriptionRequest,
    SubscriptionView,
)
from service.hooks.visible_hooks import SeenHooks

router = APIRouter(prefix="/subscriptions", tags=["subscriptions"])

Limit = Annotated[int, Query(ge=1, le=100)]
Cursor = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$", description="`next_cursor` of a page.")]


@router.post(
    "",
    status_code=status.HTTP_201_CREATED,
    responses=keyed_responses(CallbackRefused),
)
def subscribe(request: SubscriptionRequest, hooks: Hooks, caller: Admin) -> SubscriptionMade:
    """Subscribe a URL to the events of every job from now on.

    The answer holds the secret to verify events with; it is not shown again.
    """
    now = hooks.outbox.now()
    subscription = Subscription(
        id=new_job_id(),
        url=require_permitted_url(request.url, hooks.settings),
        events=frozenset(request.events),
        secret=request.secret or new_secret(),
        created_at=now,
        updated_at=now,
    )
    hooks.subscriptions.put(subscription.id, subscription)
    record(caller, "subscribe", subscription.id)
    view = SubscriptionView.of(subscription)
    return SubscriptionMade(**dict(view), secret=subscription.secret)


@router.get("", responses=keyed_responses())
def list_subscriptions(hooks: SeenHooks, limit: Limit = 20, cursor: Cursor = None) -> SubscriptionList:
    """List subscriptions, oldest first."""
    return SubscriptionList.of(hooks.list_subscriptions(limit=limit, after=cursor))


@router.get("/{subscription_id}", responses=keyed_responses(SubscriptionNotFound))
def show(subscription_id: str, hooks: SeenHooks) -> SubscriptionView:
    """Return one subscription."""
    return SubscriptionView.of(hooks.get_subscription(subscription_id))


@router.put(
    "/{subscription_id}",
    responses=keyed_responses(SubscriptionNotFound, CallbackRefused),
)
def replace(
    subscription_id: str, request: SubscriptionRequest, hooks: Hooks, seen: SeenHooks, caller: Admin
) -> SubscriptionView:
    """Change a subscription's URL, events or secret; deliveries under way keep their URL."""
    old = seen.get_subscription(subscription_id)
    new = old.model_copy(
        update={
            "url": require_permitted_url(request.url, hooks.settings),
            "events": frozenset(request.events),
            "secret": request.secret or old.secret,
            "updated_at": hooks.outbox.now(),
        }
    )
    hooks.subscriptions.put(new.id, new)
    record(caller, "change_subscription", new.id)
    return SubscriptionView.of(new)


@router.delete(
    "/{subscription_id}",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=keyed_responses(SubscriptionNotFound),
)
def unsubscribe(subscription_id: str, hooks: Hooks, caller: Admin) -> None:
    """Delete a subscription; its deliveries under way are dropped."""
    if not hooks.subscriptions.delete(subscription_id):
        raise SubscriptionNotFound(subscription_id)
    record(caller, "unsubscribe", subscription_id)

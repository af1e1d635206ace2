"""Routes of the pages of webhooks: triggers, subscriptions, and deliveries, which can be sent again."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Query, Response, status
from fastapi.responses import RedirectResponse

from jobs.hooks.deliveries import DeliveryState
from jobs.hooks.triggers import TRIGGER_NAME
from service.access.guard import Admin, Reader
from service.audit import record
from service.dashboard.hooks.pages import (
    DeliveriesPage,
    DeliveryDetailsPage,
    SubscriptionsPage,
    TriggerPage,
    TriggersPage,
)
from service.dashboard.render import answer
from service.dashboard.route import PageRoute
from service.hooks.backend import Hooks
from service.hooks.schemas import SubscriptionView
from service.hooks.visible_hooks import SeenHooks

_PAGE = 50

router = APIRouter(prefix="/pages", route_class=PageRoute, include_in_schema=False)

IfNoneMatch = Annotated[str | None, Header()]
Name = Annotated[str, Path(pattern=TRIGGER_NAME)]
NameCursor = Annotated[str | None, Query(pattern=TRIGGER_NAME)]
Id = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$")]


@router.get("/triggers")
def triggers_page(
    hooks: SeenHooks, reader: Reader, after: NameCursor = None, if_none_match: IfNoneMatch = None
) -> Response:
    """Show the triggers, by name."""
    found = hooks.list_triggers(limit=_PAGE, after=after)
    page = TriggersPage(reader=reader, triggers=found.records, next=found.next, is_first=after is None)
    return answer(page, if_none_match)


@router.get("/triggers/{name}")
def trigger_page(
    name: Name, hooks: Hooks, seen: SeenHooks, reader: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """Show one trigger, with its results for the latest events."""
    trigger = seen.get_trigger(name)
    latest = hooks.intake.receipts.latest(name)
    return answer(TriggerPage(reader=reader, trigger=trigger, latest=latest), if_none_match)


@router.get("/subscriptions")
def subscriptions_page(
    hooks: SeenHooks, reader: Reader, after: Id = None, if_none_match: IfNoneMatch = None
) -> Response:
    """Show the subscriptions, oldest first."""
    found = hooks.list_subscriptions(limit=_PAGE, after=after)
    page = SubscriptionsPage(
        reader=reader,
        subscriptions=tuple(SubscriptionView.of(each) for each in found.records),
        next=found.next,
        is_first=after is None,
    )
    return answer(page, if_none_match)


@router.get("/deliveries")
def deliveries_page(
    hooks: SeenHooks,
    reader: Reader,
    job: Id = None,
    state: DeliveryState | None = None,
    before: Id = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show deliveries, newest first, of one job or all and in one state or any."""
    found = hooks.list_deliveries(limit=_PAGE, job=job, state=state, before=before)
    page = DeliveriesPage(
        reader=reader,
        deliveries=found.deliveries,
        next=found.next,
        is_first=before is None,
        job=job,
        state=state,
    )
    return answer(page, if_none_match)


@router.get("/deliveries/{delivery_id}")
def delivery_page(
    delivery_id: str, hooks: SeenHooks, reader: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """Show one delivery with its latest tries."""
    page = DeliveryDetailsPage(reader=reader, delivery=hooks.get_delivery(delivery_id))
    return answer(page, if_none_match)


@router.post("/deliveries/{delivery_id}/send-again")
def send_again(delivery_id: str, hooks: Hooks, caller: Admin) -> Response:
    """Send a delivery once more, at once, and show it."""
    hooks.replay(delivery_id)
    record(caller, "replay_delivery", delivery_id)
    return RedirectResponse(f"/pages/deliveries/{delivery_id}", status.HTTP_303_SEE_OTHER)

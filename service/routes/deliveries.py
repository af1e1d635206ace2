"""Routes for deliveries: events that were sent, or are still to be sent, to callers' URLs."""

from typing import Annotated

from fastapi import APIRouter, Query, status

from jobs.hooks.deliveries import DeliveryState
from jobs.hooks.errors import DeliveryBusy, DeliveryNotFound, DeliveryUnsendable
from service.access.guard import Admin
from service.audit import record
from service.errors import keyed_responses
from service.hooks.backend import Hooks
from service.hooks.schemas import DeliveryList, DeliveryView
from service.hooks.visible_hooks import SeenHooks

router = APIRouter(prefix="/deliveries", tags=["deliveries"])

Id = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$")]
Limit = Annotated[int, Query(ge=1, le=100)]


@router.get("", responses=keyed_responses())
def list_deliveries(
    hooks: SeenHooks, job: Id = None, state: DeliveryState | None = None, limit: Limit = 20, cursor: Id = None
) -> DeliveryList:
    """List deliveries, newest first, of one job or all and in one state or any.

    A page may hold fewer deliveries than `limit`.
    """
    return DeliveryList.of(hooks.list_deliveries(limit=limit, job=job, state=state, before=cursor))


@router.get("/{delivery_id}", responses=keyed_responses(DeliveryNotFound))
def show(delivery_id: str, hooks: SeenHooks) -> DeliveryView:
    """Return one delivery with its latest tries."""
    return DeliveryView.of(hooks.get_delivery(delivery_id))


@router.post(
    "/{delivery_id}/replay",
    status_code=status.HTTP_202_ACCEPTED,
    responses=keyed_responses(DeliveryNotFound, DeliveryBusy, DeliveryUnsendable),
)
def replay(delivery_id: str, hooks: Hooks, caller: Admin) -> DeliveryView:
    """Send a delivery once more, at once, whatever its state; the receiver sees the same webhook-id."""
    replayed = hooks.replay(delivery_id)
    record(caller, "replay_delivery", delivery_id)
    return DeliveryView.of(replayed)

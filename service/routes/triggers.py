"""Routes for triggers: rules by which training events start exports."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, status

from exporter.errors import ExportError, InvalidSpec
from exporter.outcome import Failure
from exporter.storage.uris import require_sound_uris
from jobs.control.control import Owner
from jobs.hooks.errors import CallbackRefused, TriggerNotFound
from jobs.hooks.training import TrainingEvent
from jobs.hooks.triggers import TRIGGER_NAME, Trigger, TriggerRule
from service.access.guard import Admin, Submitter
from service.audit import record
from service.dependencies import Jobs
from service.errors import keyed_responses
from service.hooks.backend import Hooks
from service.hooks.receivers import require_usable_callback
from service.hooks.schemas import TriggerList, TriggerTrial, TriggerView
from service.hooks.visible_hooks import SeenHooks

router = APIRouter(prefix="/triggers", tags=["triggers"])

Name = Annotated[str, Path(pattern=TRIGGER_NAME)]
Limit = Annotated[int, Query(ge=1, le=100)]
Cursor = Annotated[str | None, Query(pattern=TRIGGER_NAME, description="`next_cursor` of a page.")]


@router.get("", responses=keyed_responses())
def list_triggers(hooks: SeenHooks, limit: Limit = 20, cursor: Cursor = None) -> TriggerList:
    """List triggers, by name."""
    return TriggerList.of(hooks.list_triggers(limit=limit, after=cursor))


@router.put(
    "/{name}",
    responses={
        **keyed_responses(CallbackRefused, InvalidSpec),
        status.HTTP_201_CREATED: {"description": "The name is new.", "model": Trigger},
    },
)
def put(name: Name, rule: TriggerRule, hooks: Hooks, caller: Admin, response: Response) -> Trigger:
    """Create or replace a trigger; it applies to events that arrive from now on."""
    require_usable_callback(rule.template.callback_url, hooks.settings)
    require_sound_uris(rule.template)
    now = hooks.outbox.now()
    old = hooks.triggers.get(name)
    created_at = old.created_at if old else now
    trigger = Trigger(name=name, created_at=created_at, updated_at=now, uris=caller.owner.uris, **dict(rule))
    if hooks.triggers.put(name, trigger):
        response.status_code = status.HTTP_201_CREATED
    record(caller, "put_trigger", name)
    return trigger


@router.get("/{name}", responses=keyed_responses(TriggerNotFound))
def show(name: Name, hooks: Hooks, seen: SeenHooks) -> TriggerView:
    """Return one trigger, with its results for the latest events."""
    return TriggerView(**dict(seen.get_trigger(name)), latest=hooks.intake.receipts.latest(name))


@router.delete(
    "/{name}",
    status_code=status.HTTP_204_NO_CONTENT,
    responses=keyed_responses(TriggerNotFound),
)
def delete(name: Name, hooks: Hooks, caller: Admin) -> None:
    """Delete a trigger; the jobs that it started continue."""
    if not hooks.triggers.delete(name):
        raise TriggerNotFound(name)
    hooks.intake.receipts.forget(name)
    record(caller, "delete_trigger", name)


@router.post("/{name}/test", responses=keyed_responses(TriggerNotFound))
def test(name: Name, event: TrainingEvent, hooks: SeenHooks, jobs: Jobs, caller: Submitter) -> TriggerTrial:
    """Show what an event would do, without doing it; the event need not be signed."""
    trigger = hooks.get_trigger(name)
    if misfits := trigger.find_misfits(event):
        return TriggerTrial(starts=False, misfits=misfits)
    request = None
    try:
        request = trigger.template.fill(event)
        towers = jobs.plan_export(request.spec, Owner(uris=trigger.uris)).towers
        jobs.plan_export(request.spec, caller.owner)  # a caller learns nothing of URIs that it may not read
    except ExportError as error:
        return TriggerTrial(starts=False, failure=Failure.of(error), request=request)
    return TriggerTrial(starts=True, request=request, towers=towers)

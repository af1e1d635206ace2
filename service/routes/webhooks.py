"""The route for incoming webhooks: a finished training job starts exports."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request, status

from exporter.errors import StorageError
from jobs.errors import QuotaExceeded, StoreUnavailable
from jobs.hooks.errors import InvalidEvent, WebhookUnverified
from service.access.guard import peer_of
from service.access.rate_limit import GuessLimit
from service.errors import RequestTooLarge, TooManyGuesses, problem_responses
from service.hooks.backend import Hooks
from service.hooks.cloud_events import read_event
from service.hooks.schemas import EventAnswer
from service.hooks.signatures import verify

router = APIRouter(prefix="/webhooks", tags=["webhooks"])


async def _body(request: Request) -> bytes:
    return await request.body()


Body = Annotated[bytes, Depends(_body)]

_SIGNED = [
    {"name": name, "in": "header", "schema": {"type": "string"}, "description": what}
    for name, what in (
        ("webhook-id", "The message's id."),
        ("webhook-timestamp", "Unix seconds, at most five minutes from the service's clock."),
        ("webhook-signature", "v1,<base64>; several are separated by blanks."),
        ("ce-specversion", "Binary mode: 1.0, with ce-id, ce-source and ce-type."),
    )
]
_DOCUMENTED: dict[str, object] = {
    "parameters": _SIGNED,
    "requestBody": {
        "description": "A CloudEvent: the whole event (structured mode), or its data (binary mode).",
        "content": {
            "application/cloudevents+json": {"schema": {"$ref": "#/components/schemas/TrainingEvent"}},
            "application/json": {"schema": {"type": "object"}},
        },
    },
}


@router.post(
    "/training",
    status_code=status.HTTP_202_ACCEPTED,
    responses=problem_responses(
        WebhookUnverified,
        TooManyGuesses,
        InvalidEvent,
        RequestTooLarge,
        QuotaExceeded,
        StorageError,
        StoreUnavailable,
    ),
    openapi_extra=_DOCUMENTED,
)
def training(request: Request, body: Body, hooks: Hooks) -> EventAnswer:
    """Start the exports of every trigger that matches the event, once.

    The event is signed as Standard Webhooks says.
    """
    wrong_signatures: GuessLimit = request.app.state.wrong_signatures
    try:
        message_id = verify(request.headers, body, hooks.settings.signing_secrets())
    except WebhookUnverified:
        # Only now: a right signature is no guess, so that a stranger at the same address locks nobody out.
        wrong_signatures.require_below(peer_of(request))
        wrong_signatures.count(peer_of(request), right=False)
        raise
    event = read_event(request.headers, body)
    hooks.intake.refuse_replays(message_id, event, body)
    receipt, duplicate = hooks.intake.receive(event)
    return EventAnswer.of(event, receipt, duplicate=duplicate)

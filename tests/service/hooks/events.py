"""Training events as a platform would send them."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from standardwebhooks import Webhook

from service.hooks.signatures import ID, SIGNATURE, TIMESTAMP
from tests.jobs.hooks.factories import SECRET
from tests.service.requests import export_request

STRUCTURED = "application/cloudevents+json"


def training_event(event_id: str = "run-7", **data: object) -> dict[str, object]:
    """A finished training of the recorded two-tower model; a change to None leaves the field out."""
    recorded = export_request()
    told = {
        "model": "hstu",
        "status": "succeeded",
        "checkpoint_uri": recorded["checkpoint_uri"],
        "step": 11,
        "labels": {"region": "eu"},
        **data,
    }
    return {
        "specversion": "1.0",
        "id": event_id,
        "source": "/trainer/prod",
        "type": "com.example.training.completed",
        "data": {name: value for name, value in told.items() if value is not None},
    }


def rule(**template: object) -> dict[str, object]:
    """Exports every model hstu* to a folder named for the step."""
    filled = export_request(checkpoint_uri="{data.checkpoint_uri}", output_uri="/out/{data.step}")
    return {"when": {"model": "hstu*"}, "template": {**filled, **template}}


def signed(
    body: bytes, *, secret: str = SECRET, age_s: float = 0.0, message_id: str = "msg_1"
) -> dict[str, str]:
    """The headers of Standard Webhooks, written out here rather than by our own code."""
    at = datetime.fromtimestamp(int(time.time() - age_s), UTC)
    signature = Webhook(secret).sign(message_id, at, body.decode())
    return {ID: message_id, TIMESTAMP: str(int(at.timestamp())), SIGNATURE: signature}


def structured(event: Mapping[str, object], **signing: object) -> tuple[bytes, dict[str, str]]:
    body = json.dumps(event).encode()
    return body, {"content-type": STRUCTURED, **signed(body, **signing)}  # type: ignore[arg-type] # as `signed` takes them


def binary(event: Mapping[str, object]) -> tuple[bytes, dict[str, str]]:
    body = json.dumps(event["data"]).encode()
    attributes = {f"ce-{name}": str(value) for name, value in event.items() if name != "data"}
    return body, {"content-type": "application/json", **attributes, **signed(body)}

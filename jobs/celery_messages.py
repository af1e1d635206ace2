"""The messages of the queue as they lie in Redis, read strictly: something else may have written them.

Celery ends its worker over a message that is no JSON or lacks a part, and delivers others again for ever. So
a message is read here first, and only one that Slipway itself would have sent reaches Celery.
"""

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, StringConstraints, TypeAdapter

from jobs.ids import require_job_id
from jobs.queue import HostCall

RUN_EXPORT = "slipway.run_export"
JOIN_EXPORT = "slipway.join_export"

_Text = Annotated[str, StringConstraints(min_length=1, max_length=300)]
_Body = Annotated[str, StringConstraints(max_length=8000)]  # Slipway's own have less than 1,000 characters
_JobId = Annotated[str, AfterValidator(require_job_id)]
_Nothing = Annotated[dict[str, JsonValue], Field(max_length=0)]
_NoCalls = dict[str, None]  # tasks to call before, after or instead of this one

# Arguments, keywords and further calls, as Celery puts them into a body.
_RUN = TypeAdapter(tuple[tuple[_JobId], _Nothing, _NoCalls])
_JOIN = TypeAdapter(tuple[tuple[HostCall], _Nothing, _NoCalls])


def _require_date(text: str) -> str:
    datetime.fromisoformat(text)
    return text


class _Part(BaseModel):
    """A part of a message; fields that are not listed do not reach Celery."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class _Headers(_Part):
    task: Literal["slipway.run_export", "slipway.join_export"]
    id: _Text
    lang: Literal["py"] = "py"
    expires: Annotated[str, AfterValidator(_require_date)] | None = None
    eta: None = None
    retries: Literal[0] = 0
    timelimit: tuple[None, None] = (None, None)
    root_id: _Text | None = None
    origin: _Text | None = None
    compression: None = None
    redelivered: bool = False


class _DeliveryInfo(_Part):
    exchange: Literal[""]
    routing_key: _Text
    redelivered: bool = False


class _Properties(_Part):
    delivery_tag: _Text
    delivery_info: _DeliveryInfo
    body_encoding: Literal["base64"]
    priority: Annotated[int, Field(ge=0, le=9)] = 0


class QueueMessage(_Part):
    """One message about a job, as Celery and kombu lay it into Redis."""

    body: _Body
    content_encoding: Literal["utf-8"] = Field(alias="content-encoding")
    content_type: Literal["application/json"] = Field(alias="content-type")
    headers: _Headers
    properties: _Properties

    @property
    def parts(self) -> dict[str, object]:
        """The message as kombu takes it."""
        return self.model_dump(by_alias=True)


@dataclass(frozen=True)
class Delivery:
    """A message that a worker has taken and not acknowledged, with the queue it came from."""

    message: QueueMessage
    queue: str


_TAKEN = TypeAdapter(tuple[QueueMessage, str, str])


def read_message(parts: object) -> QueueMessage:
    """Return the message that these parts make; raise ValueError if Slipway would not have sent it."""
    return _check_body(QueueMessage.model_validate(parts))


def read_message_text(text: str) -> QueueMessage:
    """Return the message that waits as this text; raise ValueError if Slipway would not have sent it."""
    return _check_body(QueueMessage.model_validate_json(text))


def read_delivery(text: str) -> Delivery:
    """Return the message that a worker has taken; raise ValueError if Slipway would not have sent it."""
    message, _, routing_key = _TAKEN.validate_json(text)
    return Delivery(_check_body(message), routing_key)


def _check_body(message: QueueMessage) -> QueueMessage:
    arguments = _RUN if message.headers.task == RUN_EXPORT else _JOIN
    arguments.validate_json(base64.b64decode(message.body, validate=True))
    return message

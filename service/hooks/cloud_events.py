"""CloudEvents over HTTP, in binary and in structured mode."""

from collections.abc import Mapping
from typing import Any

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from pydantic import ValidationError

from jobs.hooks.errors import InvalidEvent
from jobs.hooks.training import TrainingEvent

_STRUCTURED = "application/cloudevents+json"
_JSON = "application/json"


def read_event(headers: Mapping[str, str], body: bytes) -> TrainingEvent:
    """Read the event in a request.

    Raises:
        InvalidEvent: the request is in neither mode, lacks an attribute, or its data is no JSON object.
    """
    message, factory = HTTPMessage(dict(headers), body), _RecordingFactory()
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        if media_type == _STRUCTURED:
            from_structured(message, JSONFormat(), factory)
        elif "ce-specversion" in headers and media_type in (_JSON, ""):
            from_binary(message, JSONFormat(), factory)
        else:
            raise InvalidEvent(
                f"the Content-Type is {media_type or 'missing'}, and there are no ce- headers beside JSON"
            )
        return TrainingEvent.model_validate(factory.fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidEvent(first["msg"], where=".".join(str(step) for step in first["loc"])) from error
    except (BaseCloudEventException, ValueError, TypeError, AttributeError, RecursionError) as error:
        # The library passes on whatever its parsers raise on a body of another shape.
        raise InvalidEvent(str(error)[:300]) from error


class _RecordingFactory:
    """Creates the library's event, which invents a missing id or time, and records the fields as sent."""

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}

    def __call__(
        self, attributes: dict[str, Any], data: dict[str, Any] | str | bytes | None
    ) -> BaseCloudEvent:
        self.fields = {**attributes, "data": {} if data is None else data}
        return CloudEvent(attributes, data)

"""Templates of export requests: text with {placeholders} that an event fills.

`{data.checkpoint_uri}` stands for a value of the event's data, at any depth; `{id}`, `{source}`, `{type}`,
`{subject}` and `{time}` stand for attributes of the event.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator

from exporter.spec import ExportSpec
from exporter.storage.uris import GATE_ROWS, climbs, forms_of, is_pattern
from jobs.hooks.callback_url import require_callback_url
from jobs.hooks.errors import CallbackRefused, TriggerUnfilled
from jobs.hooks.training import TrainingEvent
from jobs.request import CallbackUrl, ExportRequest, LabelName

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_KNOWN = re.compile(r"id|source|type|subject|time|data(\.[A-Za-z0-9_-]{1,64}){1,8}")
_MAX_VALUE = 2048


def _require_known_placeholders(text: str) -> str:
    """Return the text; ValueError if it has a placeholder that no event can fill."""
    for name in _PLACEHOLDER.findall(text):
        if not _KNOWN.fullmatch(name):
            raise ValueError(
                f"{{{name}}} is not a placeholder: write {{data.<field>}}, {{id}}, {{source}}, {{type}}, "
                "{subject} or {time}"
            )
    if set(_PLACEHOLDER.sub("", text)) & set("{}"):
        raise ValueError("a brace stands alone; a placeholder reads {data.<field>}")
    return text


Template = Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_require_known_placeholders)]


class ExportTemplate(ExportRequest):
    """An export request whose URIs, model and labels may have placeholders."""

    config_uri: Template | None = None
    checkpoint_uri: Template
    item_input_uri: Template | None = None
    sample_input_uri: Template | None = None
    assets_uri: Template | None = None
    output_uri: Template
    model: Template | None = None
    labels: Mapping[LabelName, Annotated[str, AfterValidator(_require_known_placeholders)]] = Field(
        default_factory=dict, max_length=32
    )
    callback_url: CallbackUrl | None = None

    @model_validator(mode="after")
    def _rows_of_the_gate_can_be_filled(self) -> Self:
        if (uri := self.gate_rows_uri) is not None:
            _require_known_placeholders(uri)
        return self

    @model_validator(mode="after")
    def _callback_can_be_sent_to(self) -> Self:
        if self.callback_url is not None:
            try:
                require_callback_url(self.callback_url)
            except CallbackRefused as error:
                raise ValueError(error.message) from error
        return self

    def fill(self, event: TrainingEvent) -> ExportRequest:
        """Return the request that this template makes for the event.

        Raises:
            TriggerUnfilled: the event lacks a value, or has one that is not allowed there.
        """
        fields = self.model_dump(mode="json")
        for name in _TEMPLATE_FIELDS:
            if fields[name] is not None:
                fields[name] = _fill_text(fields[name], event, name)
        if (gate := fields["release_gate"]) is not None and gate["rows_uri"] is not None:
            gate["rows_uri"] = _fill_text(gate["rows_uri"], event, GATE_ROWS)
        fields["labels"] = {
            name: _fill_text(text, event, f"labels.{name}") for name, text in self.labels.items()
        }
        try:
            return ExportRequest.model_validate(fields)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(step) for step in first["loc"])
            raise _fill_error(where, f"the filled value is invalid: {first['msg']}") from error


_TEMPLATE_FIELDS = (
    "config_uri",
    "checkpoint_uri",
    "item_input_uri",
    "sample_input_uri",
    "assets_uri",
    "output_uri",
    "model",
)
_ROW_FIELDS = ("item_input_uri", "sample_input_uri", GATE_ROWS)
assert set(_TEMPLATE_FIELDS) <= {*ExportSpec.model_fields, "model"}


def _fill_text(template: str, event: TrainingEvent, field: str) -> str:
    names_all = _PLACEHOLDER.fullmatch(template) is not None

    def read(found: re.Match[str]) -> str:
        text = _read_value(found[1], event, field)
        if field in _ROW_FIELDS and not names_all and any(_is_several(form) for form in forms_of(text)):
            raise _fill_error(field, f"{found[1]} of the event is a pattern or a list, and not a name")
        return text

    filled = _PLACEHOLDER.sub(read, template)
    if climbs(filled) and not climbs(_PLACEHOLDER.sub("_", template)):
        raise _fill_error(field, "what the event gives climbs out of its folder with '..'")
    return filled


def _is_several(text: str) -> bool:
    """Return whether a text, as a part of the URI of rows, would name more than one place."""
    return "," in text or is_pattern(text)


def _read_value(name: str, event: TrainingEvent, field: str) -> str:
    value = _look_up(name, event)
    if value is None:
        raise _fill_error(field, f"the event has no {name}")
    if isinstance(value, bool | float) or not isinstance(value, str | int):
        raise _fill_error(field, f"{name} of the event is neither text nor a whole number")
    text = str(value)
    if not text or len(text) > _MAX_VALUE or not all(form.isprintable() for form in forms_of(text)):
        raise _fill_error(field, f"{name} of the event is empty, too long, or holds control characters")
    if climbs(text):
        raise _fill_error(field, f"{name} of the event climbs out of its folder with '..'")
    return text


def _look_up(name: str, event: TrainingEvent) -> JsonValue:
    first, *path = name.split(".")
    if first != "data":
        attributes = {"id": event.id, "source": event.source, "type": event.type, "subject": event.subject}
        return event.time.isoformat() if first == "time" and event.time else attributes.get(first)
    value: JsonValue = dict(event.data)
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _fill_error(field: str, why: str) -> TriggerUnfilled:
    return TriggerUnfilled(
        f"the template's {field} cannot be filled: {why}",
        hint="correct the trigger's template, or the training platform's events",
        where=field,
    )

"""A pipeline config as a flat list of settings, so that two configs can be compared setting by setting."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from exporter.config.message import read_message

# Fields that name a message among its siblings, in the order in which they are looked for.
_NAMES = ("feature_name", "sequence_name", "group_name", "tower_name", "name", "task_name")


def settings_by_path(text: str, *, where: str = "config") -> dict[str, str]:
    """Return each value that the config sets, by its path; entries of a list by their names.

    Entries without a name are numbered, so that only they move when one is inserted before them.

    Raises:
        InvalidPipelineConfig: the text is no pipeline config.
    """
    return dict(_settings(read_message(text, where), ""))


def _settings(message: Message, path: str) -> Iterator[tuple[str, str]]:
    for field, value in message.ListFields():
        at = f"{path}.{field.name}" if path else field.name
        if field.message_type is None:
            yield at, _values(field, value)
        elif field.message_type.GetOptions().map_entry:
            for key in sorted(value):
                yield f"{at}[{key}]", str(value[key])
        elif isinstance(value, Message):
            yield at, ""  # a message may be set and empty, which also says something
            yield from _settings(value, at)
        else:
            for label, inner in _labelled(value):
                yield f"{at}[{label}]", ""
                yield from _settings(inner, f"{at}[{label}]")


def _labelled(messages: list[Message]) -> Iterator[tuple[str, Message]]:
    """Yield each message of a list with its name, or with its number if it has none, or no own one."""
    names = [_name(message) for message in messages]
    times = Counter(names)
    for number, (name, message) in enumerate(zip(names, messages, strict=True)):
        yield name if name and times[name] == 1 else f"{name} {number}".strip(), message


def _name(message: Message) -> str:
    """Return the name that a message, or the only message in it, gives itself; empty if there is none."""
    fields = {field.name: value for field, value in message.ListFields()}
    for name in _NAMES:
        if isinstance(found := fields.get(name), str):
            return found
    inner = next(iter(fields.values()), None)
    return _name(inner) if len(fields) == 1 and isinstance(inner, Message) else ""


def _values(field: FieldDescriptor, value: Any) -> str:  # as protobuf's own type says
    """Return a value, or all values of a list, as text."""
    values = list(value) if field.is_repeated else [value]
    if field.enum_type is not None:
        values = [field.enum_type.values_by_number[number].name for number in values]
    return ", ".join(str(each) for each in values)

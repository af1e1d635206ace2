"""JSON as typed values: dataclasses read by their annotations, and objects whose fields are attributes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

Value = TypeVar("Value")


class JsonObject(Mapping[str, Any]):
    """A JSON object: its fields are attributes and items. Lists in it are tuples, objects are JsonObjects."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        """Take the fields as `json.loads` gives them."""
        self._fields = {name: _frozen(value) for name, value in fields.items()}

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the object; ValueError if the JSON is none."""
        return cls(_expect(value, Mapping))

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_fields", {}):
            return self._fields[name]
        raise AttributeError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._fields!r})"


def read(kind: type[Value], value: object) -> Value:
    """Return JSON as a value of `kind`, which may be a dataclass; fields that it lacks are passed over.

    Raises:
        ValueError: the JSON is of another form.
    """
    result: Value = _read(kind, value)
    return result


def as_json(value: object, *, with_none: bool = False) -> object:
    """Return what `json.dumps` takes; without the fields of dataclasses that are None, unless asked for."""
    if is_dataclass(value) and not isinstance(value, type):
        found = {each.name: getattr(value, each.name) for each in fields(value)}
        return as_json(
            {name: each for name, each in found.items() if with_none or each is not None}, with_none=with_none
        )
    if isinstance(value, Mapping):
        return {str(name): as_json(each, with_none=with_none) for name, each in value.items()}
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return (
        [as_json(each, with_none=with_none) for each in value] if isinstance(value, tuple | list) else value
    )


def to_text(value: object) -> str:
    """Return an answer as JSON on one line, complete."""
    return json.dumps(as_json(value, with_none=True), ensure_ascii=False, separators=(",", ":"))


def _read(kind: Any, value: object) -> Any:
    if get_origin(kind) is not None:
        return _read_parts(get_origin(kind), get_args(kind), value)
    if is_dataclass(kind):
        return _read_fields(kind, _expect(value, Mapping))
    if issubclass(kind, JsonObject):
        return kind.read(value)
    if issubclass(kind, Enum):
        return kind(value)
    if kind is datetime:
        return datetime.fromisoformat(_expect(value, str))
    return float(_expect(value, (int, float))) if kind is float else _expect(value, kind)


def _read_parts(origin: Any, parts: tuple[Any, ...], value: object) -> Any:
    """Read an optional value, a tuple of any length or a mapping."""
    if origin in (Union, UnionType):
        [some] = [each for each in parts if each is not NoneType]
        return None if value is None else _read(some, value)
    if origin is tuple:
        return tuple(_read(parts[0], each) for each in _expect(value, (list, tuple)))
    return {_read(parts[0], key): _read(parts[1], each) for key, each in _expect(value, Mapping).items()}


def _read_fields(kind: Any, given: Mapping[str, object]) -> Any:
    hints = _hints(kind)
    try:
        return kind(**{name: _read(hint, given[name]) for name, hint in hints.items() if name in given})
    except TypeError as error:  # a field without a default is missing
        raise ValueError(str(error)) from error


def _expect(value: object, kind: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r:.80} is not of the expected type")
    return value


def _frozen(value: object) -> object:
    if isinstance(value, dict):
        return JsonObject(value)
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)

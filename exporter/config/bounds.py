"""Bounds on a config's numbers and names, which refuse absurd ones before anything is built from them.

A model of four billion layers would parse, and take a worker's memory and hours; a name with characters that
reverse the direction of text would mislead the people who read it.
"""

import math
import re
from collections.abc import Iterator

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from exporter.errors import InvalidPipelineConfig
from exporter.redaction import deceives, escape_deceptive

MOST_OF_A_KIND = 4096  # layers, heads, experts, interests: things that are built one by one
WIDEST = 1 << 20  # widths of vectors, lengths of sequences
MOST_ROWS = 1 << 48  # of a table

_ONE_BY_ONE = re.compile(r"(^|_)(num|n|k|iters|layers)(_|$)")
_TABLE = re.compile(r"bucket|zch|capacity|size$|rows")
_MASK = re.compile(r"bitmask|seed")
_NAME = re.compile(r"names?$")
_READ = ("feature_configs", "model_config")  # only training reads the rest


def check_bounds(message: Message, where: str) -> None:
    """Raise InvalidPipelineConfig, naming the first field with an absurd number or name."""
    for field, value in message.ListFields():
        if field.name in _READ:
            for path, leaf, content in _leaves(field, value, field.name):
                if problem := _problem(leaf, content):
                    raise InvalidPipelineConfig(
                        f"{where}: {path} {problem}", hint="correct the field", where=f"{where}: {path}"
                    )


def _leaves(
    field: FieldDescriptor, value: object, path: str
) -> Iterator[tuple[str, FieldDescriptor, object]]:
    """Yield the path, descriptor and content of every value that is not a message."""
    repeated = isinstance(value, Message | str | bytes | int | float) is False
    for number, each in enumerate(value if repeated else (value,)):  # type: ignore[arg-type,var-annotated] # protobuf's own lists
        at = f"{path}[{number}]" if repeated else path
        if isinstance(each, Message):
            if (
                each.DESCRIPTOR.file.package != "google.protobuf"
            ):  # the parameters of a custom feature are not bounded
                for inner, content in each.ListFields():
                    yield from _leaves(inner, content, f"{at}.{inner.name}")
        else:
            yield at, field, each


def _problem(field: FieldDescriptor, value: object) -> str:
    name = field.name
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}, which is no finite number"
    if isinstance(value, str) and _NAME.search(name) and (deceives(value) or ".." in value.split("/")):
        return f"is {escape_deceptive(value)[:100]!r}: a name holds no control characters and does not climb"
    if isinstance(value, int) and field.enum_type is None and not _MASK.search(name):
        most = MOST_ROWS if _TABLE.search(name) else MOST_OF_A_KIND if _ONE_BY_ONE.search(name) else WIDEST
        if abs(value) > most:
            return f"is {value}, and {most} is more than any model needs"
    return ""

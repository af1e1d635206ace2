"""Write the chart's comments and its table of values from values.schema.json: `python -m deploy.chart`.

The schema describes every value once. values.yaml says the same above each value, and README.md in a table.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from pydantic import JsonValue

CHART = Path(__file__).parent / "helm" / "slipway"
VALUES = CHART / "values.yaml"
README = CHART / "README.md"
BEGIN, END = "<!-- values: written by `make chart` -->", "<!-- end of values -->"

_WIDTH = 118
_KEY = re.compile(r"( *)([\w.-]+):(?: |$)")
_HEAD = """\
# Values of the chart. The comments are the descriptions of values.schema.json, by which Helm checks values
# and refuses others; `make chart` writes them, and the table of README.md.
"""

_SCHEMA: dict[str, JsonValue] = json.loads((CHART / "values.schema.json").read_text())


def describe(path: tuple[str, ...]) -> str | None:
    """Return what a value is for, or None if its name is not the chart's, as those of labels."""
    here: JsonValue = _SCHEMA
    for depth, name in enumerate(path):
        is_group = path[0] == "workers" and depth == 1
        here = _at(_SCHEMA, "$defs", "group") if is_group else _at(here, "properties", name)
    told = _at(here, "description")
    return str(told) if told else None


def commented(text: str) -> str:
    """Return values.yaml with the schema's description above each value, in place of other comments."""
    lines = [*_HEAD.splitlines(), ""]
    path: list[tuple[int, str]] = []
    for line in text.partition("\n\n")[2].splitlines():
        if line.lstrip().startswith("#"):
            continue
        if match := _KEY.match(line):
            indent = len(match[1])
            path = [*(each for each in path if each[0] < indent), (indent, match[2])]
            told = describe(tuple(name for _, name in path)) or ""
            begin = f"{match[1]}# "
            lines += textwrap.wrap(told, _WIDTH, initial_indent=begin, subsequent_indent=begin)
        lines.append(line)
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """Return README.md with a table of the values of values.yaml."""
    values = yaml.safe_load(VALUES.read_text())
    rows = ["| value | default | what it is |", "| --- | --- | --- |", *_rows(values)]
    head, _, rest = text.partition(BEGIN)
    return "\n".join([head + BEGIN, "", *rows, "", END + rest.partition(END)[2]])


def _rows(values: Mapping[str, JsonValue], above: tuple[str, ...] = ()) -> Iterator[str]:
    for name, value in values.items():
        path = (*above, name)
        if isinstance(value, dict) and any(describe((*path, each)) for each in value):
            yield from _rows(value, path)
        else:
            told = (describe(path) or "").replace("|", "\\|")
            yield f"| `{'.'.join(path)}` | `{json.dumps(value)}` | {told} |"


def _at(value: JsonValue, *steps: str) -> JsonValue:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


if __name__ == "__main__":
    VALUES.write_text(commented(VALUES.read_text()))
    README.write_text(with_table(README.read_text()))

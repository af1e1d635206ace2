"""values.yaml and the chart's README say of every value what it is for."""

import re
from collections.abc import Iterator, Mapping

import pytest
import yaml
from pydantic import JsonValue

from deploy.chart import README, VALUES, commented, describe, with_table

TEXT = VALUES.read_text()


def paths(values: Mapping[str, JsonValue], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        yield (*above, name)
        if isinstance(value, dict) and (*above, name) not in FREE:
            yield from paths(value, (*above, name))


# Values whose names are Kubernetes's or the operator's.
FREE = [
    *((part, "resources") for part in ("api", "workerDefaults", "redis")),
    ("workerDefaults", "podAnnotations"),
]


@pytest.mark.parametrize("path", list(paths(yaml.safe_load(TEXT))), ids=".".join)
def test_every_value_is_described(path: tuple[str, ...]) -> None:
    assert describe(path)


def test_a_comment_stands_above_every_value() -> None:
    known = sum(1 for _ in paths(yaml.safe_load(TEXT)))
    assert len(re.findall(r"^ *# .*\n *[\w.-]+:", TEXT, re.MULTILINE)) == known


def test_the_comments_and_the_table_are_the_schemas() -> None:
    assert commented(TEXT) == TEXT, "run `make chart`"
    assert with_table(README.read_text()) == README.read_text(), "run `make chart`"


def test_a_comment_changes_no_value() -> None:
    bare = "\n".join(line for line in TEXT.splitlines() if not line.lstrip().startswith("#"))
    assert yaml.safe_load(bare) == yaml.safe_load(TEXT)
    assert commented(f"# head\n\n{bare.lstrip()}\n") == TEXT

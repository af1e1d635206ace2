"""The committed description of the API, and what would break its readers."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from service.openapi import DOCUMENT, breaking_changes, current_text

Document = dict[str, Any]  # JSON, edited in place


def test_the_committed_description_is_current() -> None:
    assert DOCUMENT.read_text() == current_text(), "run `make openapi`"


def schema(document: Document, name: str) -> Document:
    found: Document = document["components"]["schemas"][name]
    return found


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["paths"].pop("/exports/plan"), "POST /exports/plan is gone"),
        (lambda d: schema(d, "JobView")["properties"].pop("state"), "JobView.state is gone"),
        (lambda d: schema(d, "JobState")["enum"].remove("failed"), "JobState no longer knows failed"),
        (
            lambda d: schema(d, "ExportRequest")["required"].append("ranks"),
            "ExportRequest.ranks is now required",
        ),
        (
            lambda d: schema(d, "JobView")["properties"]["attempt"].update(type="string"),
            "JobView.attempt is string, and was integer",
        ),
        (
            lambda d: d["paths"]["/exports"]["get"]["parameters"][0].update(required=True),
            "GET /exports: parameter state is now required",
        ),
        (
            lambda d: d["paths"]["/exports"]["get"]["parameters"].pop(0),
            "GET /exports: parameter state is gone",
        ),
    ],
)
def test_what_callers_would_miss_is_told(change: Callable[[Document], object], told: str) -> None:
    old = json.loads(DOCUMENT.read_text())
    new = copy.deepcopy(old)
    change(new)
    assert breaking_changes(old, new) == [told]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["paths"].update({"/new": {"get": {}}}),
        lambda d: schema(d, "JobView")["properties"].update(new={"type": "string"}),
        lambda d: schema(d, "JobView")["required"].append("new"),
        lambda d: schema(d, "JobState")["enum"].append("paused"),
    ],
)
def test_what_is_added_breaks_nobody(change: Callable[[Document], object]) -> None:
    old = json.loads(DOCUMENT.read_text())
    new = copy.deepcopy(old)
    change(new)
    assert breaking_changes(old, new) == []

"""Recorded configs with one thing changed."""

from exporter.config.family import FamilyConfig
from exporter.config.parse import parse_pipeline_config
from tests.exporter.config.conftest import FIXTURES


def parse_recorded(model: str, *edits: tuple[str, str]) -> FamilyConfig:
    """Return the model of a recorded config, (old, new) text replaced in it, the first occurrence of each.

    Only text behind `model_config` is replaced.
    """
    text = (FIXTURES / model / "pipeline.config").read_text()
    start = text.index("model_config {")
    head, tail = text[:start], text[start:]
    for old, new in edits:
        assert old in tail, old
        tail = tail.replace(old, new, 1)
    return parse_pipeline_config(head + tail).model

"""The page of supported models lists every family and feature kind, as refused where it is."""

import re

from exporter.config.families.registry import SUPPORTED
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.schema import FeatureKind
from tests.architecture.tree import ROOT

NAME = re.compile(r"`(\w+)`")


def names_of(section: str, *, columns: int = 2) -> set[str]:
    """The names in the first columns of the rows of a section's table."""
    text = (ROOT / "docs" / "supported-models.md").read_text()
    [content] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    rows = [line.split("|")[1:columns] for line in content.splitlines() if line.startswith("| ")]
    return {name for row in rows for cell in row for name in NAME.findall(cell)}


def test_every_family_is_listed_as_supported_or_as_refused() -> None:
    known = {field.name for field in ModelConfig.DESCRIPTOR.oneofs_by_name["model"].fields}
    assert names_of("Models") == set(SUPPORTED)
    assert known - set(SUPPORTED) <= names_of("What is refused")


def test_every_kind_of_feature_is_listed() -> None:
    assert names_of("Features") == set(FeatureKind)

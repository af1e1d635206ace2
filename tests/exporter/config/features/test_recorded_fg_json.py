"""Every feature's blocks of fg.json are those that TorchEasyRec's exports wrote."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from exporter.config.features.feature_files import files_of, published_name, rename_files
from exporter.config.features.feature_messages import feature_sources
from exporter.config.features.fg_json import fg_json
from exporter.config.message import read_message
from tests.exporter.config.conftest import FIXTURES

RECORDED = sorted(FIXTURES.glob("*/exported/*fg.json"))


def _recorded(path: Path) -> dict[str, Any]:
    """Blocks by the names of their features; those of a sequence carry its name."""
    return _by_name(json.loads(path.read_text())["features"])


def _by_name(blocks: Sequence[Mapping[str, Any]], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for block in blocks:
        if "sequence_name" in block:
            found |= _by_name(block["features"], f"{block['sequence_name']}__")
        else:
            found[prefix + block["feature_name"]] = block
    return found


def test_the_recordings_are_there() -> None:
    assert len(RECORDED) > 20


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_blocks_are_the_recorded_ones(path: Path) -> None:
    config = read_message((path.parents[1] / "pipeline.config").read_text(), "config")
    made: dict[str, Any] = {}
    for source in feature_sources(config):
        copies = {
            name: published_name(name, (FIXTURES / name).read_bytes()) for name in files_of(source.message)
        }
        rename_files(source.message, copies)
        prefix = f"{source.parent.sequence_name}__" if source.parent else ""
        made |= _by_name(fg_json(source), prefix)
    recorded = _recorded(path)
    assert set(recorded) <= set(made)
    for name, block in recorded.items():
        assert made[name] == block

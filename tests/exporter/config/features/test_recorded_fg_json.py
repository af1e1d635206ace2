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
from exporter.config.parse import parse_pipeline_config
from exporter.config.render import render_fg_json
from exporter.construction.feature_copies import copy_feature_files
from exporter.spec import TowerName
from exporter.storage.places import EVERYWHERE
from exporter.towers.view import tower_configs
from tests.exporter.config.conftest import FIXTURES
from tests.exporter.models.recorded import tower_of

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


@pytest.mark.parametrize(
    "path",
    RECORDED,
    ids=lambda path: f"{path.parts[-3]}-{path.stem}",
)
def test_a_towers_whole_file_is_the_recorded_one(path: Path) -> None:
    part = path.name.removesuffix("fg.json").removesuffix(".") or "model"
    text = (path.parents[1] / "pipeline.config").read_text()
    [config] = tower_configs(parse_pipeline_config(text), (TowerName(tower_of(part)),))
    copies = copy_feature_files(config, assets_uri=str(FIXTURES), config_uri=None, places=EVERYWHERE)
    assert not copies.missing
    made = json.loads(render_fg_json(config, copies.names))
    assert made.keys() == {"features"}
    recorded = _apart_from_order(json.loads(path.read_text())["features"])
    for name, block in _apart_from_order(made["features"]).items():
        if "features" in block:  # TorchEasyRec lists features that the model does not read, too
            listed = recorded[name]["features"]
            recorded[name]["features"] = {each: listed[each] for each in block["features"]}
        assert block == recorded[name]
    read = {name for group in config.pipeline.groups for name in group.all_features}
    assert set(_by_name(made["features"])) >= read


def _apart_from_order(blocks: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Blocks by name, and those of a sequence's features within it."""
    found = {}
    for block in blocks:
        own = dict(block)
        if "features" in own:
            own["features"] = _apart_from_order(own["features"])
        found[own.get("feature_name") or own["sequence_name"]] = own
    return found


@pytest.mark.parametrize("model", sorted({path.parts[-3] for path in RECORDED} - {"tdm", "dssm_v2"}))
def test_features_come_in_the_recorded_order(model: str) -> None:
    [tower] = tower_configs(parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text()), None)
    written = list(_by_name(json.loads(render_fg_json(tower))["features"]))
    recorded = list(_recorded(FIXTURES / model / "exported" / "fg.json"))
    assert written == [name for name in recorded if name in written]

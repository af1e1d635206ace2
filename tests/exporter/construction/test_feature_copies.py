"""Files that features name are copied if the job may read them; the others are named in a remark."""

from hashlib import md5
from pathlib import Path

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.config.render import render_fg_json, render_pipeline_config
from exporter.config.schema import TowerConfig
from exporter.construction import feature_copies
from exporter.construction.feature_copies import FeatureCopies, copy_feature_files
from exporter.storage.places import EVERYWHERE, Places
from exporter.storage.uris import FileRoots, UriRules
from exporter.towers.view import tower_configs
from tests.exporter.models.recorded import FIXTURES

TOKENIZER, LIBRARY = "data/rec2/tokenizer.json", "data/rec2/libcustom_op.so"
UNTRUSTED = Places(trusts_configs=False)


def _tower(*edits: tuple[str, str]) -> TowerConfig:
    text = (FIXTURES / "multi_tower" / "pipeline.config").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    [tower] = tower_configs(parse_pipeline_config(text), None)
    return tower


def _copy(
    tower: TowerConfig, *, assets: str | None = str(FIXTURES), places: Places = EVERYWHERE
) -> FeatureCopies:
    return copy_feature_files(tower, assets_uri=assets, config_uri=None, places=places)


def _name(path: str) -> str:
    file = FIXTURES / path
    return f"{file.stem}_{md5(file.read_bytes(), usedforsecurity=False).hexdigest()}{file.suffix}"


def test_each_file_is_copied_once_under_a_name_with_its_digest() -> None:
    copies = _copy(_tower())
    assert copies.names == {TOKENIZER: _name(TOKENIZER), LIBRARY: _name(LIBRARY)}
    assert copies.contents[_name(TOKENIZER)] == (FIXTURES / TOKENIZER).read_bytes()
    assert copies.remarks() == ()


def test_fg_json_and_the_config_name_the_copies() -> None:
    tower = _tower(('vocab_file: "data/rec2/', 'asset_dir: "data/rec2" vocab_file: "'))
    copies = _copy(tower)
    for text in (render_fg_json(tower, copies.names), render_pipeline_config(tower, copies.names)):
        assert _name(TOKENIZER) in text
        assert "data/rec2/tokenizer" not in text
        assert "asset_dir" not in text


def test_relative_paths_begin_in_the_configs_folder(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "t.json").write_text("{}")
    tower = _tower((TOKENIZER, "words/t.json"))
    config_uri = f"file://{tmp_path}/pipeline.config"
    copies = copy_feature_files(tower, assets_uri=None, config_uri=config_uri, places=EVERYWHERE)
    assert list(copies.names) == ["words/t.json"]
    assert list(copies.missing) == [LIBRARY]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("data/none.json", "there is no"),
        ("/nowhere/none.json", "there is no"),
        ("ftp://host/t.json", "no store"),
        ("data/rec2", "regular"),
    ],
)
def test_a_file_that_cannot_be_read_keeps_its_name_and_is_remarked(path: str, why: str) -> None:
    tower = _tower((TOKENIZER, path))
    copies = _copy(tower)
    assert list(copies.names) == [LIBRARY]
    assert why in copies.missing[path]
    [remark] = copies.remarks()
    assert path in remark
    assert f'"{path}"' in render_fg_json(tower, copies.names)


def test_a_config_given_as_text_has_no_folder() -> None:
    copies = _copy(_tower(), assets=None)
    assert set(copies.missing) == {TOKENIZER, LIBRARY}


@pytest.mark.parametrize("path", ["../secret.json", "{root}/secret.json", "linked.json"])
@pytest.mark.parametrize("by", ["rules", "folders"])
def test_what_the_job_may_not_read_is_not_read(tmp_path: Path, path: str, by: str) -> None:
    (tmp_path / "secret.json").write_text("secret")
    own = tmp_path / "own"
    own.mkdir()
    (own / "linked.json").symlink_to(tmp_path / "secret.json")
    places = {
        "rules": Places(rules=UriRules(inputs=(str(own),))),
        "folders": Places(folders=FileRoots(roots=(own,))),
    }
    copies = _copy(_tower((TOKENIZER, path.format(root=tmp_path))), assets=str(own), places=places[by])
    assert copies.contents == {}


@pytest.mark.parametrize(
    ("folder", "path"),
    [
        ("{root}/own", "../secret.json"),
        ("{root}/own", "{root}/secret.json"),
        ("{root}/own", "linked.json"),
        ("{root}/own", "/proc/self/environ"),
        ("s3://bucket/configs", "/proc/self/environ"),
        ("s3://bucket/configs", "file:///proc/self/environ"),
    ],
)
def test_paths_of_a_config_that_is_not_trusted_stay_below_its_folder(
    tmp_path: Path, folder: str, path: str
) -> None:
    (tmp_path / "secret.json").write_text("secret")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "linked.json").symlink_to(tmp_path / "secret.json")
    tower = _tower((TOKENIZER, path.format(root=tmp_path)), (LIBRARY, f"{tmp_path}/secret.json"))
    copies = _copy(tower, assets=folder.format(root=tmp_path), places=UNTRUSTED)
    assert copies.contents == {}


def test_files_below_the_folder_are_read_of_a_config_that_is_not_trusted() -> None:
    assert list(_copy(_tower(), places=UNTRUSTED).names) == [TOKENIZER, LIBRARY]


def test_all_files_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    size = (FIXTURES / TOKENIZER).stat().st_size
    monkeypatch.setattr(feature_copies, "MOST_BYTES", size)
    copies = _copy(_tower())
    assert list(copies.names) == [TOKENIZER]
    assert "more than 0 bytes" in copies.missing[LIBRARY]

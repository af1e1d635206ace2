"""Files that were cut short, changed or exchanged are found: when they are loaded, or as they are read."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from slipway.loader import ArtifactDamaged, ArtifactInvalid, LoaderError, TowerMissing, load
from slipway.loading.layout.digests import CHUNK, LEAF
from tests.slipway.loading.artifacts import INPUTS, change_manifest, flip_byte, read_manifest, write_manifest
from tests.slipway.loading.conftest import Artifacts

pytestmark = pytest.mark.slow

PACKAGE = "user/packages/0"
CODE = f"{PACKAGE}/data/aotinductor/model"


def cut_short(path: Path) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)


def only(folder: Path, pattern: str) -> Path:
    [found] = folder.glob(pattern)
    return found


def change_index(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    path = folder / "prepared.json"
    index = json.loads(path.read_text())
    change(index)
    path.chmod(0o644)
    path.write_text(json.dumps(index))


PREPARED: dict[str, Callable[[Path], object]] = {
    "weights cut short": lambda folder: cut_short(folder / PACKAGE / "weights.bin"),
    "weights missing": lambda folder: (folder / PACKAGE / "weights.bin").unlink(),
    "leaves cut short": lambda folder: cut_short(folder / PACKAGE / "weights.leaves"),
    "leaves changed": lambda folder: flip_byte(folder / PACKAGE / "weights.leaves", LEAF - 1),
    "library cut short": lambda folder: cut_short(only(folder, f"{CODE}/*.so")),
    "library changed": lambda folder: flip_byte(only(folder, f"{CODE}/*.so"), 5000),
    "operators changed": lambda folder: flip_byte(only(folder, f"{CODE}/*wrapper.json"), 20),
    "index changed": lambda folder: flip_byte(folder / "prepared.json", 300),
    "index of another size": lambda folder: change_index(folder, lambda index: index.update(version=2)),
    "digest of the index missing": lambda folder: (folder / "prepared.json.sha256").unlink(),
    "manifest changed": lambda folder: flip_byte(folder / "manifest.json", 30),
}


@pytest.mark.parametrize("case", PREPARED)
def test_a_prepared_folder_that_was_changed_is_refused(copied: Artifacts, case: str) -> None:
    PREPARED[case](copied.prepared("old"))
    with pytest.raises((ArtifactDamaged, ArtifactInvalid)):
        load(copied.prepared("old"), "user", check="never")


def test_a_changed_weight_is_found_before_loading_if_all_are_checked(copied: Artifacts) -> None:
    flip_byte(copied.prepared("old") / PACKAGE / "weights.bin", 70)
    with pytest.raises(ArtifactDamaged, match=r"weights\.bin is damaged between its bytes 0 and"):
        load(copied.prepared("old"), "user", check="all")


def test_a_changed_weight_is_found_as_it_is_read_and_nothing_is_answered_any_more(copied: Artifacts) -> None:
    flip_byte(copied.prepared("old") / PACKAGE / "weights.bin", 70)
    with load(copied.prepared("old"), "user") as tower:
        with pytest.raises(ArtifactDamaged, match=r"between its bytes 0 and"):
            tower.await_check(60)
        with pytest.raises(ArtifactDamaged):
            tower(INPUTS)


def test_a_newer_artifact_that_is_damaged_changes_nothing(copied: Artifacts, artifacts: Artifacts) -> None:
    flip_byte(copied.prepared("old") / PACKAGE / "weights.bin", 70)
    with load(artifacts.prepared("new"), "user", check="all") as tower:
        before = tower(INPUTS)["emb"]
        with pytest.raises(ArtifactDamaged):
            tower.swap(copied.prepared("old"))
        assert torch.equal(tower(INPUTS)["emb"], before) and tower.job_id == "job2"


PUBLISHED: dict[str, Callable[[Path], object]] = {
    "package cut short": lambda folder: cut_short(folder / "user/aoti/aoti_model.pt2"),
    "package changed": lambda folder: flip_byte(folder / "user/aoti/aoti_model.pt2", 9000),
    "package missing": lambda folder: (folder / "user/aoti/aoti_model.pt2").unlink(),
}


@pytest.mark.parametrize("case", PUBLISHED)
def test_a_published_artifact_that_was_changed_is_refused(copied: Artifacts, case: str) -> None:
    PUBLISHED[case](copied.published("old"))
    with pytest.raises(ArtifactDamaged, match=r"aoti_model\.pt2"):
        load(copied.published("old"), "user")


def test_a_manifest_that_names_files_elsewhere_is_refused(copied: Artifacts) -> None:
    folder = copied.published("old")
    manifest = read_manifest(folder)
    [entry] = manifest.towers
    elsewhere = entry.package.model_copy(update={"path": "../old/user/aoti/aoti_model.pt2"})
    towers = (entry.model_copy(update={"package": elsewhere}),)
    write_manifest(folder, manifest.model_copy(update={"towers": towers}))
    with pytest.raises(ArtifactInvalid, match=r"towers\.0\.package\.path is not a path below"):
        load(folder, "user")


def test_a_manifest_without_towers_or_with_nonsense_is_refused(copied: Artifacts) -> None:
    folder = copied.published("old")
    change_manifest(folder, towers=())
    with pytest.raises(TowerMissing):
        load(folder, "user")
    for text in ("[]", "{", '{"version": 2}', '{"version": 1, "job_id": 7}', '{"version": 1}', "\xff"):
        (folder / "manifest.json").write_text(text)
        with pytest.raises(ArtifactInvalid):
            load(folder, "user")


def test_every_prefix_of_a_manifest_is_refused(copied: Artifacts) -> None:
    folder = copied.published("old")
    whole = (folder / "manifest.json").read_bytes()
    for length in range(0, len(whole), 97):
        (folder / "manifest.json").write_bytes(whole[:length])
        with pytest.raises(LoaderError):
            load(folder, "user")


def test_chunks_are_what_the_layout_says() -> None:
    assert (CHUNK, LEAF) == (1 << 20, 32)

"""`prepare` writes a folder as a whole or not at all, whatever happens meanwhile."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import torch

from cli.main import main
from slipway.loader import ArtifactDamaged, ArtifactInvalid, PrepareFailed, load, prepare
from tests.faults.commands import has_mounts
from tests.slipway.loading.artifacts import INPUTS, digest_of_tree, flip_byte
from tests.slipway.loading.conftest import Artifacts

pytestmark = pytest.mark.slow

_PREPARE = "import sys; from slipway.loader import prepare; prepare(sys.argv[1], sys.argv[2])"


def start(artifact: Path, into: Path, *front: str) -> "subprocess.Popen[str]":
    command = [*front, sys.executable, "-c", _PREPARE, str(artifact), str(into)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def large(artifact: Path, to: Path, size: int) -> Path:
    """A copy of an artifact with one more file, of random bytes, so that preparing takes a while."""
    shutil.copytree(artifact, to)
    manifest = json.loads((to / "manifest.json").read_text())
    data = os.urandom(size)
    (to / "user" / "extra.bin").write_bytes(data)
    entry = {"path": "user/extra.bin", "size": size, "sha256": hashlib.sha256(data).hexdigest()}
    manifest["towers"][0]["files"].append(entry)
    (to / "manifest.json").write_text(json.dumps(manifest))
    return to


def test_the_layout_is_the_documented_one(artifacts: Artifacts) -> None:
    folder = artifacts.prepared("two")
    index = json.loads((folder / "prepared.json").read_text())
    assert (index["format"], index["version"], index["chunk"]) == ("slipway-prepared", 1, 1 << 20)
    assert (folder / "manifest.json").read_bytes() == (
        artifacts.published("two") / "manifest.json"
    ).read_bytes()
    recorded = (folder / "prepared.json.sha256").read_text()
    assert recorded == hashlib.sha256((folder / "prepared.json").read_bytes()).hexdigest() + "\n"
    [tower] = index["towers"]
    assert [package["package"] for package in tower["packages"]] == [
        "user/aoti/sparse_model.pt2",
        "user/aoti/aoti_model.pt2",
    ]
    for package in tower["packages"]:
        weights = package["weights"]
        data = (folder / weights["path"]).read_bytes()
        assert len(data) == weights["size"] and len(data) % 4096 == 0
        for tensor in weights["tensors"]:
            assert tensor["offset"] % (4096 if tensor["nbytes"] >= 4096 else 64) == 0
        leaf = hashlib.sha256(b"\0" + data).digest()  # of a file of one chunk
        assert (folder / weights["leaves"]).read_bytes() == leaf
        root = hashlib.sha256(b"\1" + len(data).to_bytes(8, "little") + leaf).hexdigest()
        assert root == weights["root"]


def test_weights_are_those_of_the_package(artifacts: Artifacts) -> None:
    """Every tensor's bytes lie somewhere in the published package, which is not compressed."""
    folder = artifacts.prepared("old")
    packed = (artifacts.published("old") / "user/aoti/aoti_model.pt2").read_bytes()
    [tower] = json.loads((folder / "prepared.json").read_text())["towers"]
    weights = tower["packages"][0]["weights"]
    data = (folder / weights["path"]).read_bytes()
    parts = [
        data[each["offset"] : each["offset"] + each["nbytes"]]
        for each in weights["tensors"]
        if each["nbytes"]
    ]
    assert len(parts) >= 5 and all(part in packed for part in parts)


def test_nobody_may_write_to_its_files(artifacts: Artifacts) -> None:
    files = [path for path in artifacts.prepared("old").rglob("*") if path.is_file()]
    assert files and {path.stat().st_mode & 0o777 for path in files} == {0o444}


def test_preparing_again_changes_nothing(copied: Artifacts) -> None:
    folder = copied.prepared("old")
    before = digest_of_tree(folder), folder.stat().st_ino
    assert prepare(copied.published("old"), folder) == folder
    assert (digest_of_tree(folder), folder.stat().st_ino) == before


def test_a_folder_that_is_something_else_is_left_alone(copied: Artifacts, artifacts: Artifacts) -> None:
    folder = copied.root / "other"
    folder.mkdir()
    (folder / "mine").write_text("x")
    for into in (folder, copied.prepared("old")):
        before = digest_of_tree(into)
        with pytest.raises(PrepareFailed, match="is there"):
            prepare(artifacts.published("new"), into)
        assert digest_of_tree(into) == before


def test_a_damaged_artifact_is_not_prepared(copied: Artifacts) -> None:
    flip_byte(copied.published("old") / "user/aoti/aoti_model.pt2", 9000)
    with pytest.raises(ArtifactDamaged):
        prepare(copied.published("old"), copied.root / "into")
    assert not list(copied.root.glob("*into*"))


def test_a_package_that_is_none_is_not_prepared(copied: Artifacts) -> None:
    package = copied.published("old") / "user/aoti/aoti_model.pt2"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("model/data/aotinductor/model/../../../../x", b"")
    manifest = json.loads((copied.published("old") / "manifest.json").read_text())
    digest = hashlib.sha256(package.read_bytes()).hexdigest()
    manifest["towers"][0]["package"].update(size=package.stat().st_size, sha256=digest)
    (copied.published("old") / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactInvalid, match="leads out of it"):
        prepare(copied.published("old"), copied.root / "into")


def test_several_at_once_make_one(artifacts: Artifacts, tmp_path: Path) -> None:
    artifact = large(artifacts.published("old"), tmp_path / "artifact", 20 << 20)
    running = [start(artifact, tmp_path / "into") for _ in range(3)]
    assert [(each.communicate(timeout=120)[1], each.returncode) for each in running] == [("", 0)] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifact", "into"]
    with load(tmp_path / "into", "user", check="all") as tower:
        assert tower(INPUTS)["emb"].shape == (4, 3)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_one_that_is_interrupted_leaves_nothing_that_could_be_loaded(
    artifacts: Artifacts, tmp_path: Path, ending: signal.Signals
) -> None:
    artifact = large(artifacts.published("old"), tmp_path / "artifact", 200 << 20)
    running = start(artifact, tmp_path / "into")
    while not list(tmp_path.glob(".into.partial-*/user")) and running.poll() is None:
        time.sleep(0.005)
    running.send_signal(ending)
    running.communicate(timeout=60)
    assert running.returncode != 0 and not (tmp_path / "into").exists()
    partial = list(tmp_path.glob(".into.partial-*"))
    assert len(partial) == (1 if ending is signal.SIGKILL else 0)
    assert not any((folder / "prepared.json.sha256").exists() for folder in partial)
    prepare(artifact, tmp_path / "into")
    load(tmp_path / "into", "user").close()


@pytest.mark.skipif(not has_mounts(), reason="no small disk can be mounted here")
def test_a_full_disk_leaves_nothing_and_says_so(artifacts: Artifacts, tmp_path: Path) -> None:
    artifact = large(artifacts.published("old"), tmp_path / "artifact", 4 << 20)
    disk = tmp_path / "disk"
    disk.mkdir()
    script = 'mount -t tmpfs -o size=2m tmpfs "$0" && "$@"; code=$?; ls -A "$0" >&2; exit $code'
    front = ("unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",)), "sh", "-c", script)
    running = start(artifact, disk / "into", *front, str(disk))
    _, words = running.communicate(timeout=60)
    assert running.returncode == 1
    assert words.rstrip().endswith("(the disk is full)"), words  # and no name of a file behind it


def test_the_command_prepares(
    artifacts: Artifacts, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prepare", str(artifacts.published("two")), str(tmp_path / "into")]
    assert main(words) == 0
    assert capsys.readouterr().out == f"prepared: {tmp_path / 'into'}\n"
    with load(tmp_path / "into", "user") as tower, load(artifacts.published("two"), "user") as other:
        assert torch.equal(tower(INPUTS)["emb"], other(INPUTS)["emb"])
    assert main([*words, "--tower", "item"]) == 1
    assert "tower" in capsys.readouterr().err

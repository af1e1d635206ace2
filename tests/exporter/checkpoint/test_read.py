from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.read import fetch_checkpoint, open_checkpoint
from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.errors import CheckpointUnreadable, SourceNotFound
from exporter.storage.open import open_store

STEP = "hstu_match/model.ckpt-11"


def test_a_step_and_its_model_folder_open_the_same_checkpoint(fixtures: Path) -> None:
    step, model = open_checkpoint(fixtures / STEP), open_checkpoint(fixtures / STEP / "model")
    assert isinstance(step, DcpCheckpoint)
    assert len(step.tensors()) == 40
    assert step.digest() == model.digest()


def test_safetensors_open_as_file_and_as_folder(tmp_path: Path) -> None:
    save_file({"model.a": torch.ones(2, 3)}, tmp_path / "x.safetensors")
    for path in (tmp_path, tmp_path / "x.safetensors"):
        checkpoint = open_checkpoint(path)
        assert isinstance(checkpoint, SafetensorsCheckpoint)
        assert torch.equal(checkpoint.read("model.a"), torch.ones(2, 3))


def test_what_is_no_checkpoint_is_refused_with_what_would_be(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match="is no checkpoint") as refusal:
        open_checkpoint(tmp_path)
    assert "model/.metadata" in refusal.value.hint
    with pytest.raises(SourceNotFound):
        open_checkpoint(tmp_path / "absent")


def test_a_checkpoint_on_this_machine_is_opened_in_place(fixtures: Path, tmp_path: Path) -> None:
    assert fetch_checkpoint((fixtures / STEP).as_uri(), tmp_path) == fixtures / STEP
    assert fetch_checkpoint(str(fixtures / STEP), tmp_path) == fixtures / STEP
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SourceNotFound):
        fetch_checkpoint(str(tmp_path / "absent"), tmp_path)


@pytest.mark.parametrize("below", ["", "/model"])
@pytest.mark.parametrize("kind", ["s3", "oss", "gs", "az"])
def test_only_the_weights_of_a_remote_checkpoint_are_fetched(
    kind: str, below: str, fixtures: Path, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    uri = request.getfixturevalue(f"{kind}_uri")
    store = open_store(uri)
    for name in (".metadata", "__0_0.distcp"):
        store.put(fixtures / STEP / "model" / name, f"step/model/{name}")
        store.put_bytes(b"large", f"step/optimizer/{name}")
    fetched = open_checkpoint(fetch_checkpoint(f"{uri}/step{below}", tmp_path))
    assert fetched.digest() == open_checkpoint(fixtures / STEP).digest()
    assert not list(tmp_path.rglob("optimizer"))


@pytest.mark.parametrize("uri", ["weights", "weights/x.safetensors"])
def test_remote_safetensors_are_fetched(uri: str, s3_uri: str, tmp_path: Path) -> None:
    save_file({"model.a": torch.ones(2)}, tmp_path / "x.safetensors")
    store = open_store(s3_uri)
    store.put(tmp_path / "x.safetensors", "weights/x.safetensors")
    store.put_bytes(b"", "weights/other")
    checkpoint = open_checkpoint(fetch_checkpoint(f"{s3_uri}/{uri}", tmp_path / "fetched"))
    assert torch.equal(checkpoint.read("model.a"), torch.ones(2))


def test_a_remote_place_without_a_checkpoint_is_named(s3_uri: str, tmp_path: Path) -> None:
    open_store(s3_uri).put_bytes(b"", "other/file")
    with pytest.raises(CheckpointUnreadable, match="other is no checkpoint"):
        fetch_checkpoint(f"{s3_uri}/other", tmp_path)
    with pytest.raises(SourceNotFound, match="absent"):
        fetch_checkpoint(f"{s3_uri}/absent", tmp_path)

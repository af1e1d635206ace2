from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from exporter.checkpoint.safetensors import SafetensorsCheckpoint
from exporter.checkpoint.tensors import TensorMeta
from exporter.errors import CheckpointUnreadable


def test_the_tensors_of_several_files_are_one_checkpoint(tmp_path: Path) -> None:
    files = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    save_file({"a": torch.ones(2, 3)}, files[0])
    save_file({"b": torch.arange(4)}, files[1])
    checkpoint = SafetensorsCheckpoint(files)
    assert checkpoint.tensors() == {
        "a": TensorMeta(shape=(2, 3), dtype=torch.float32),
        "b": TensorMeta(shape=(4,), dtype=torch.int64),
    }
    assert torch.equal(checkpoint.read("b"), torch.arange(4))
    assert checkpoint.digest() == SafetensorsCheckpoint(files[::-1]).digest()


def test_a_tensor_read_owns_its_memory(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2), "b": torch.ones(1000)}, tmp_path / "x.safetensors")
    tensor = SafetensorsCheckpoint([tmp_path / "x.safetensors"]).read("a")
    assert tensor.untyped_storage().nbytes() == 8


def test_a_name_in_two_files_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / "1.safetensors", tmp_path / "2.safetensors"]
    for file in files:
        save_file({"a": torch.ones(1)}, file)
    with pytest.raises(CheckpointUnreadable, match=r"a is in both 1.safetensors and .*2.safetensors"):
        SafetensorsCheckpoint(files)


def test_a_file_is_mapped_once_for_the_pieces_of_all_its_tensors(tmp_path: Path) -> None:
    values = {f"t{count}": torch.rand(7, count) for count in range(1, 20)}
    save_file(values, tmp_path / "x.safetensors")
    checkpoint = SafetensorsCheckpoint([tmp_path / "x.safetensors"])
    pieces = {name: checkpoint.pieces(name)[0] for name in values}
    assert all(torch.equal(pieces[name].rows(torch.arange(7)), values[name]) for name in values)
    assert Path("/proc/self/maps").read_text().count(str(tmp_path)) == 1


@pytest.mark.parametrize("kept", [0, 4, 60, -1])
def test_a_truncated_file_is_named(kept: int, tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(10)}, file)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(CheckpointUnreadable, match=r"x\.safetensors is no \.safetensors file"):
        SafetensorsCheckpoint([file])

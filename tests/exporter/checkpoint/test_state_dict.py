"""State dicts of torch.save: read as torch reads them, mapped, and refused where they hold anything else."""

import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import fetch_checkpoint, open_checkpoint
from exporter.checkpoint.state_dict import StateDictCheckpoint
from exporter.checkpoint.tensors import TensorMeta
from exporter.construction.input_limits import list_checkpoint_files
from exporter.errors import CheckpointUnreadable
from exporter.storage.open import open_store

DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)


def saved(folder: Path, content: object) -> Path:
    torch.save(content, folder / "weights.pt")
    return folder / "weights.pt"


def test_a_modules_state_dict_is_what_torch_reads(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Embedding(1000, 300), nn.BatchNorm1d(300))  # one large tensor, several small
    checkpoint = open_checkpoint(saved(tmp_path, module.state_dict()))
    assert isinstance(checkpoint, StateDictCheckpoint)
    expected = module.state_dict()
    assert checkpoint.tensors().keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(checkpoint.read(name), tensor)
        [piece] = checkpoint.pieces(name)
        assert torch.equal(piece.raw.reshape(-1), tensor.reshape(-1).view(torch.uint8))
    assert torch.equal(checkpoint.rows("0.weight", 7, 11), expected["0.weight"][7:11])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_read(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    checkpoint = StateDictCheckpoint(saved(tmp_path, {"a": tensor}))
    assert checkpoint.tensors() == {"a": TensorMeta(shape=(2, 3), dtype=dtype)}
    assert torch.equal(checkpoint.read("a"), tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).reshape(3, 4).T,
        torch.arange(12.0).reshape(3, 4)[1:, ::2],
        torch.arange(12.0)[5],
        torch.arange(12.0).reshape(3, 4)[1],
        torch.empty(0, 4),
        torch.arange(12.0).reshape(3, 4)[:, :1],
    ],
)
def test_views_of_a_storage_are_read_by_their_strides(tensor: Tensor, tmp_path: Path) -> None:
    checkpoint = StateDictCheckpoint(saved(tmp_path, {"a": tensor}))
    read = checkpoint.read("a")
    assert torch.equal(read, tensor) and read.is_contiguous()
    assert read.untyped_storage().nbytes() == read.nbytes
    [piece] = checkpoint.pieces("a")
    assert piece.raw.numel() == tensor.nbytes
    if tensor.dim() == 2:
        assert torch.equal(checkpoint.rows("a", 0, tensor.shape[0]), tensor)


def test_weights_that_are_one_tensor_are_read_under_both_names(tmp_path: Path) -> None:
    shared = nn.Parameter(torch.ones(2, 3))
    checkpoint = StateDictCheckpoint(saved(tmp_path, OrderedDict(a=shared, b=shared)))
    assert torch.equal(checkpoint.read("a"), checkpoint.read("b"))


def test_a_module_is_filled_and_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    trained, served = nn.Linear(3, 2), nn.Linear(3, 2)
    checkpoint = open_checkpoint(saved(tmp_path, trained.state_dict()))
    load_weights(served, checkpoint, prefix="", known=["weight", "bias"])
    assert torch.equal(served.weight, trained.weight)
    assert checkpoint.digest() == open_checkpoint(tmp_path / "weights.pt").digest()


def test_a_remote_one_is_fetched_alone_and_counted(s3_uri: str, tmp_path: Path) -> None:
    store = open_store(s3_uri)
    store.put(saved(tmp_path, {"a": torch.ones(2)}), "run/weights.pt")
    store.put_bytes(b"", "run/other")
    uri = f"{s3_uri}/run/weights.pt"
    assert [file.name for file in list_checkpoint_files(uri)] == ["weights.pt"]
    checkpoint = open_checkpoint(fetch_checkpoint(uri, tmp_path / "fetched"))
    assert torch.equal(checkpoint.read("a"), torch.ones(2))


def test_a_training_state_is_refused_with_the_line_that_converts_it(tmp_path: Path) -> None:
    state = {"state_dict": nn.Linear(2, 2).state_dict(), "epoch": 3, "optimizer": {"lr": 0.1}}
    with pytest.raises(CheckpointUnreadable, match="more than tensors: state_dict, epoch") as refusal:
        open_checkpoint(saved(tmp_path, state))
    assert "torch.save(torch.load(path)['state_dict'], 'weights.pt')" in refusal.value.hint


def test_a_whole_module_is_refused_and_none_of_it_is_run(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match=r"asks for torch\.nn\.modules\.linear\.Linear") as refusal:
        open_checkpoint(saved(tmp_path, nn.Linear(2, 2)))
    assert "torch.save(model.state_dict(), 'weights.pt')" in refusal.value.hint


@pytest.mark.parametrize("content", [torch.ones(2), [torch.ones(2)], {}, {3: torch.ones(2)}])
def test_what_is_no_dict_of_tensors_is_refused(content: object, tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnreadable, match="weights.pt holds"):
        open_checkpoint(saved(tmp_path, content))


def test_the_format_before_torch_1_6_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"a": torch.ones(2)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointUnreadable, match="no state dict as torch.save writes it") as refusal:
        open_checkpoint(path)
    assert "save it again" in refusal.value.hint


@pytest.mark.parametrize("kept", [0, 100, -1])
def test_a_truncated_file_is_refused(kept: int, tmp_path: Path) -> None:
    path = saved(tmp_path, {"a": torch.ones(1000)})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointUnreadable, match=r"weights\.pt"):
        open_checkpoint(path)


@pytest.mark.parametrize("order", [b"big", b"little" * 1000])
def test_numbers_of_another_byte_order_are_refused(order: bytes, tmp_path: Path) -> None:
    source, path = zipfile.ZipFile(saved(tmp_path, {"a": torch.ones(2)})), tmp_path / "big.pt"
    with zipfile.ZipFile(path, "w") as written:
        for name in source.namelist():
            written.writestr(name, order if name.endswith("byteorder") else source.read(name))
    with pytest.raises(CheckpointUnreadable, match="another byte order"):
        open_checkpoint(path)

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.read import open_checkpoint
from exporter.errors import CheckpointUnreadable

Write = Callable[..., Path]
RECORDED = ["hstu_match/model.ckpt-11", "hstu_match_desc/model.ckpt-11", "dlrm_hstu_sharded/model.ckpt-0"]
TABLE = torch.arange(24, dtype=torch.float32).reshape(6, 4)
ROWS = [((0, 0), TABLE[:2].clone()), ((2, 0), TABLE[2:].clone())]
COLUMNS = [((0, 0), TABLE[:, :3].clone()), ((0, 3), TABLE[:, 3:].clone())]
QUARTERS = [
    ((row, column), TABLE[row : row + 3, column : column + 2].clone()) for row in (0, 3) for column in (0, 2)
]


def as_torch_reads_it(folder: Path) -> dict[str, Tensor]:
    stored = DcpCheckpoint(folder).tensors()
    tensors = {name: torch.empty(meta.shape, dtype=meta.dtype) for name, meta in stored.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that it loads in one process
        load(tensors, storage_reader=FileSystemReader(folder), no_dist=True)
    return tensors


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_checkpoints_read_bit_for_bit_as_torch_reads_them(name: str, fixtures: Path) -> None:
    checkpoint = DcpCheckpoint(fixtures / name / "model")
    expected = as_torch_reads_it(fixtures / name / "model")
    assert len(expected) >= 40
    for tensor, value in expected.items():
        assert torch.equal(checkpoint.read(tensor), value), tensor
        assert checkpoint.read(tensor).dtype == value.dtype


@pytest.mark.parametrize("pieces", [ROWS, COLUMNS, QUARTERS, QUARTERS[::-1], [((0, 0), TABLE)]])
def test_chunks_are_put_together(pieces: list[tuple[tuple[int, int], Tensor]], write_dcp: Write) -> None:
    folder = write_dcp((6, 4), pieces)
    assert torch.equal(DcpCheckpoint(folder).read("model.table"), TABLE)
    assert torch.equal(as_torch_reads_it(folder)["model.table"], TABLE)


def test_a_rank_without_rows_leaves_an_empty_chunk(write_dcp: Write) -> None:
    folder = write_dcp((6, 4), [*ROWS, ((6, 0), torch.empty(0, 4))])
    assert torch.equal(DcpCheckpoint(folder).read("model.table"), TABLE)


@pytest.mark.parametrize("shape", [(), (0, 4)])
def test_a_scalar_and_an_empty_tensor_are_read(shape: tuple[int, ...], write_dcp: Write) -> None:
    folder = write_dcp(shape, [((0,) * len(shape), torch.ones(shape))])
    assert torch.equal(DcpCheckpoint(folder).read("model.table"), torch.ones(shape))


def test_a_tensor_read_owns_its_memory(write_dcp: Write) -> None:
    folder = write_dcp((2, 4), [((0, 0), TABLE[2:4])])
    tensor = DcpCheckpoint(folder).read("model.table")
    assert torch.equal(tensor, TABLE[2:4])
    assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_only_the_tensors_asked_for_are_read(fixtures: Path, tmp_path: Path) -> None:
    (tmp_path / ".metadata").symlink_to(fixtures / RECORDED[2] / "model" / ".metadata")
    (tmp_path / "__0_0.distcp").symlink_to(fixtures / RECORDED[2] / "model" / "__0_0.distcp")
    checkpoint = DcpCheckpoint(tmp_path)  # the second rank's file is missing
    follow = "model.embedding_group.emb_impls.__BASE__.ebc.embedding_bags.follow_user_num_range_emb.weight"
    assert checkpoint.read(follow).shape == (9, 16)


def test_a_missing_file_is_named(write_dcp: Write) -> None:
    folder = write_dcp((6, 4), ROWS)
    (folder / "__1_0.distcp").unlink()
    with pytest.raises(CheckpointUnreadable, match=r"__1_0.distcp: tensor model.table .*No such file"):
        DcpCheckpoint(folder).read("model.table")
    with pytest.raises(CheckpointUnreadable, match="__1_0.distcp"):
        DcpCheckpoint(folder).digest()


@pytest.mark.parametrize("kept", [0, 100, -6])
def test_a_truncated_file_is_named(kept: int, write_dcp: Write) -> None:
    folder = write_dcp((6, 4), ROWS)
    data = (folder / "__1_0.distcp").read_bytes()
    (folder / "__1_0.distcp").write_bytes(data[:kept])
    with pytest.raises(CheckpointUnreadable, match=r"__1_0.distcp: tensor model.table .*cut short"):
        DcpCheckpoint(folder).read("model.table")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"nothing torch wrote",
        {"a": "dict"},
        torch.ones(2, 2).to_sparse(),
        torch.ones(2, 2, device="meta"),
    ],
)
def test_what_is_no_dense_tensor_is_refused(content: object, write_dcp: Write) -> None:
    folder = write_dcp((2, 2), [((0, 0), content)], sizes={0: (2, 2)})
    with pytest.raises(CheckpointUnreadable, match=r"__0_0.distcp: tensor model.table"):
        DcpCheckpoint(folder).read("model.table")


@pytest.mark.parametrize("content", [torch.ones(2, 3), torch.ones(2, 2, dtype=torch.int32), torch.ones(4)])
def test_a_chunk_of_another_shape_or_dtype_is_refused(content: Tensor, write_dcp: Write) -> None:
    folder = write_dcp((2, 2), [((0, 0), content)], sizes={0: (2, 2)})
    with pytest.raises(CheckpointUnreadable, match=r"model.table .* holds .* where .metadata says"):
        DcpCheckpoint(folder).read("model.table")


def test_no_more_memory_is_taken_than_the_file_can_fill(write_dcp: Write) -> None:
    huge = (1 << 30, 1 << 20)
    folder = write_dcp(huge, [((0, 0), torch.ones(1, 1))], sizes={0: huge})
    with pytest.raises(CheckpointUnreadable, match="cannot hold"):
        DcpCheckpoint(folder).read("model.table")


def test_the_digest_changes_with_any_byte_read(write_dcp: Write) -> None:
    folder = write_dcp((6, 4), ROWS)
    before = DcpCheckpoint(folder).digest()
    (folder / "unrelated").touch()
    assert DcpCheckpoint(folder).digest() == before
    data = bytearray((folder / "__1_0.distcp").read_bytes())
    data[-1] ^= 1
    (folder / "__1_0.distcp").write_bytes(data)
    assert DcpCheckpoint(folder).digest() != before


@pytest.mark.filterwarnings("ignore:.*torch.distributed is disabled")
@pytest.mark.parametrize("folder_type", [str, Path])
def test_a_checkpoint_saved_to_a_string_or_a_path_is_read(folder_type: type, tmp_path: Path) -> None:
    weights = {"model.weight": torch.arange(6.0).reshape(2, 3)}
    save(weights, checkpoint_id=folder_type(tmp_path / "model"), no_dist=True)
    assert torch.equal(open_checkpoint(tmp_path).read("model.weight"), weights["model.weight"])

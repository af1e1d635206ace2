"""Parts of tensors, from checkpoints that real ranks of TorchRec wrote; and which files that opens."""

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from exporter.checkpoint.dcp import DcpCheckpoint
from exporter.checkpoint.dcp_metadata import read_metadata
from exporter.errors import CheckpointUnreadable
from tests.exporter.checkpoint.training_ranks import NAME, ROWS, TABLES, WIDTH, values_of

Write = Callable[..., Path]
SHARDED = "dlrm_hstu_sharded/model.ckpt-0/model"
VIDEOS = "model.embedding_group.seq_emb_impls.__BASE__.ec_dict.16.embeddings.video_id_emb.weight"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Written by two processes; a table each by rows, by columns, whole on one rank and on both."""
    folder = tmp_path_factory.mktemp("trained")
    command = [sys.executable, "-m", "tests.exporter.checkpoint.training_ranks"]
    ranks = [subprocess.Popen([*command, str(rank), str(folder)]) for rank in (0, 1)]
    assert [rank.wait(timeout=240) for rank in ranks] == [0, 0]
    return folder / "model"


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_any_number_of_ranks_reads_what_two_wrote(table: str, ranks: int, trained: Path) -> None:
    checkpoint = DcpCheckpoint(trained)
    bounds = [ROWS * rank // ranks for rank in range(ranks + 1)]
    shares = [checkpoint.rows(NAME.format(table), first, end) for first, end in pairwise(bounds)]
    assert torch.equal(torch.cat(shares), values_of(table))


@pytest.mark.slow
def test_the_ranks_had_sharded_them_in_four_ways(trained: Path) -> None:
    stored = read_metadata(trained / ".metadata")
    shapes = {table: [chunk.size for chunk in stored[NAME.format(table)].chunks] for table in TABLES}
    assert shapes["by_rows"] == [(4, WIDTH), (3, WIDTH)]
    assert shapes["by_columns"] == [(ROWS, 4), (ROWS, 4)]
    assert shapes["on_one_rank"] == shapes["on_both"] == [(ROWS, WIDTH)]


def test_rows_are_those_of_the_whole_tensor(fixtures: Path) -> None:
    checkpoint = DcpCheckpoint(fixtures / SHARDED)
    for name, meta in checkpoint.tensors().items():
        if len(meta.shape) == 2:
            first, end = meta.shape[0] // 3, meta.shape[0] - 1
            assert torch.equal(checkpoint.rows(name, first, end), checkpoint.read(name)[first:end]), name


def test_only_the_files_are_opened_that_hold_the_rows(fixtures: Path, tmp_path: Path) -> None:
    [first, second] = read_metadata(fixtures / SHARDED / ".metadata")[VIDEOS].chunks
    assert first.file != second.file
    for file in (".metadata", first.file):
        (tmp_path / file).symlink_to(fixtures / SHARDED / file)
    checkpoint = DcpCheckpoint(tmp_path)
    assert checkpoint.rows(VIDEOS, 0, first.size[0]).shape == first.size
    with pytest.raises(CheckpointUnreadable, match=f"{second.file}: tensor {VIDEOS} could not be read"):
        checkpoint.rows(VIDEOS, 0, first.size[0] + 1)


def test_pieces_lie_where_they_are_stored(write_dcp: Write) -> None:
    left, right = torch.ones(4, 1), torch.zeros(4, 2)
    pieces = DcpCheckpoint(write_dcp((4, 3), [((0, 0), left), ((0, 1), right)])).pieces("model.table")
    assert [piece.offset for piece in pieces] == [(0, 0), (0, 1)]
    assert [piece.shape for piece in pieces] == [(4, 1), (4, 2)]
    for values, piece in zip((left, right), pieces, strict=True):
        assert torch.equal(piece.rows(torch.arange(4)), values)


def test_a_file_is_mapped_once_for_all_pieces_in_it(fixtures: Path) -> None:
    checkpoint = DcpCheckpoint(fixtures / SHARDED)
    names = [name for name, meta in checkpoint.tensors().items() if len(meta.shape) == 2]
    pieces = {name: checkpoint.pieces(name) for name in names}
    for name in names:
        whole = checkpoint.read(name)
        for piece in pieces[name]:
            part = whole[piece.offset[0] :, piece.offset[1] :][: piece.shape[0], : piece.shape[1]]
            assert torch.equal(piece.rows(torch.arange(piece.shape[0])), part)
    mapped = Path("/proc/self/maps").read_text().count(str(fixtures / SHARDED))
    assert mapped <= len(list((fixtures / SHARDED).glob("*.distcp"))) < sum(map(len, pieces.values()))


def test_a_transposed_chunk_is_put_in_order(write_dcp: Write) -> None:
    values = torch.arange(6.0).reshape(2, 3)
    checkpoint = DcpCheckpoint(write_dcp((3, 2), [((0, 0), values.t())]))
    assert torch.equal(checkpoint.rows("model.table", 1, 3), values.t()[1:])


@pytest.mark.parametrize("offsets", [[(0, 0), (1, 0)], [(0, 0), (2, 0), (2, 0)]])
def test_shards_that_overlap_are_named_with_their_files(
    offsets: list[tuple[int, int]], write_dcp: Write
) -> None:
    folder = write_dcp((4, 2), [(at, torch.ones(2, 2)) for at in offsets])
    with pytest.raises(CheckpointUnreadable, match=r"model.table has chunks .*__\d_0.distcp.*__\d_0.distcp"):
        read_metadata(folder / ".metadata")

"""A table in pieces gives the rows that a whole one gives, however it is cut."""

import copy

import pytest
import torch
import torch.nn.functional as F

from exporter.checkpoint.tensors import Piece, TensorMeta, raw_of
from exporter.dtypes import TableDtype
from exporter.models.embedding.table_in_pieces import TableInPieces
from exporter.models.embedding.tables import LOW_TABLES

TABLE = torch.arange(24, dtype=torch.float32).reshape(6, 4)
ROWS = [(0, 0, 2, 4), (2, 0, 4, 4)]
COLUMNS = [(0, 0, 6, 1), (0, 1, 6, 3)]
BOXES = [(0, 0, 3, 2), (0, 2, 3, 2), (3, 0, 3, 2), (3, 2, 3, 2)]


def cut(boxes: list[tuple[int, int, int, int]]) -> TableInPieces:
    pieces = [
        Piece(
            offset=(row, column),
            raw=raw_of(TABLE[row : row + rows, column : column + columns].contiguous()),
            dtype=TABLE.dtype,
        )
        for row, column, rows, columns in boxes
    ]
    return TableInPieces(TensorMeta(shape=(6, 4), dtype=TABLE.dtype), pieces)


@pytest.mark.parametrize("boxes", [ROWS, COLUMNS, BOXES, BOXES[::-1], [(0, 0, 6, 4)]])
@pytest.mark.parametrize("ids", [[5], [0, 5, 5, 2, 0], [3, 1], []])
def test_rows_are_those_of_the_whole_table(boxes: list[tuple[int, int, int, int]], ids: list[int]) -> None:
    wanted = torch.tensor(ids, dtype=torch.int64)
    places, rows = cut(boxes).look_up(wanted)
    assert torch.equal(F.embedding(places, rows), F.embedding(wanted, TABLE))


@pytest.mark.parametrize("boxes", [ROWS, [(0, 0, 6, 4)]])
@pytest.mark.parametrize("ids", [[-1], [6], [0, 5, 7], [-(2**40), 1]])
def test_ids_of_no_row_are_refused_as_by_a_whole_table(
    boxes: list[tuple[int, int, int, int]], ids: list[int]
) -> None:
    wanted = torch.tensor(ids)
    with pytest.raises(IndexError):
        F.embedding(wanted, TABLE)
    with pytest.raises(IndexError, match="of a table that has 6 rows"):
        cut(boxes).rows(wanted)


@pytest.mark.parametrize(
    "boxes", [ROWS[:1], ROWS[1:], BOXES[:3], COLUMNS[1:], [(0, 0, 2, 4), (3, 0, 3, 4)], [*ROWS, ROWS[0]]]
)
def test_rows_that_pieces_do_not_have_once_are_refused(boxes: list[tuple[int, int, int, int]]) -> None:
    with pytest.raises(IndexError, match=r"do not cover row \d exactly once"):
        cut(boxes).rows(torch.arange(6))


def test_only_the_rows_asked_for_become_a_tensor() -> None:
    _, rows = cut(ROWS).look_up(torch.tensor([4, 1, 4]))
    assert torch.equal(rows, TABLE[[1, 4]])


def test_no_copy_is_made_with_the_module() -> None:
    table = cut(ROWS)
    assert copy.deepcopy(table).look_up(torch.tensor([1]))[1].shape == (1, 4)
    assert not list(table.state_dict())


def test_rows_before_and_behind_are_cut_from_a_piece() -> None:
    piece = Piece(offset=(2, 0), raw=raw_of(TABLE[2:6].contiguous()), dtype=TABLE.dtype)
    assert [(part.offset[0], part.shape[0]) for part in piece.outside(3, 5)] == [(2, 1), (5, 1)]
    assert [(part.offset[0], part.shape[0]) for part in piece.outside(0, 2)] == [(2, 4)]
    assert piece.outside(0, 9) == ()


@pytest.mark.parametrize("trained", [torch.float32, torch.float16])
@pytest.mark.parametrize("kept_in", list(LOW_TABLES))
def test_rows_are_given_as_they_are_kept_whether_their_piece_is_or_not(
    kept_in: TableDtype, trained: torch.dtype
) -> None:
    low, table_RD = LOW_TABLES[kept_in], (TABLE / 7).to(trained)
    written = low.fuse(table_RD[2:5].float())
    pieces = [
        Piece(offset=(0, 0), raw=raw_of(table_RD[:2, :3].contiguous()), dtype=trained),
        Piece(offset=(0, 3), raw=raw_of(table_RD[:2, 3:].contiguous()), dtype=trained),
        Piece(offset=(2, 0), raw=raw_of(written), dtype=written.dtype),
        Piece(offset=(5, 0), raw=raw_of(table_RD[5:].contiguous()), dtype=trained),
    ]
    table = TableInPieces(TensorMeta(shape=(6, 4), dtype=trained), pieces, kept_in)
    expected = low(low.pack(table_RD.float()), 4)
    for ids in (torch.tensor([5, 0, 3, 3]), torch.arange(6), torch.tensor([2])):
        assert torch.equal(table.rows(ids), expected.rows(ids))


@pytest.mark.parametrize("kept_in", [None, TableDtype.FP16, TableDtype.FP32])
def test_rows_of_fp16_are_exact_in_fp32_whether_their_piece_is_widened_or_not(
    kept_in: TableDtype | None,
) -> None:
    table_RD = (TABLE / 7).half()
    wide = table_RD[2:].to(torch.float32 if kept_in is TableDtype.FP32 else torch.float16)
    pieces = [
        Piece(offset=(0, 0), raw=raw_of(table_RD[:2].contiguous()), dtype=table_RD.dtype),
        Piece(offset=(2, 0), raw=raw_of(wide.contiguous()), dtype=wide.dtype),
    ]
    table = TableInPieces(TensorMeta(shape=(6, 4), dtype=table_RD.dtype), pieces, kept_in)
    ids = torch.tensor([5, 0, 3, 3])
    assert torch.equal(table.rows(ids), table_RD.float()[ids])

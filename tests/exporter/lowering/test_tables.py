"""Tables are quantised piece by piece, and the loss of precision is reported."""

import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from exporter.checkpoint.mapped_tensor import map_tensor
from exporter.checkpoint.tensors import TensorMeta
from exporter.dtypes import TableDtype
from exporter.lowering import tables
from exporter.lowering.errors import TableOutOfRange
from exporter.lowering.tables import quantise_table
from tests.memory_taken import memory_taken

TABLE_BYTES, QUANTISED_BYTES = 128 << 20, 48 << 20
LOW = (TableDtype.FP16, TableDtype.INT8, TableDtype.INT4)


def rows_of(count: int, width: int = 8) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("dtype", LOW)
def test_pieces_make_the_same_table(dtype: TableDtype, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, error = quantise_table(rows_of(50), dtype, name="t")
    monkeypatch.setattr(tables, "PIECE", 7 * 32)  # seven rows
    in_pieces, same_error = quantise_table(rows_of(50), dtype, name="t")
    assert all(torch.equal(each, in_pieces.state_dict()[key]) for key, each in whole.state_dict().items())
    assert same_error.max_absolute == error.max_absolute
    assert same_error.mean_relative == pytest.approx(error.mean_relative)


@pytest.mark.parametrize("dtype", LOW)
def test_the_error_of_rows_is_what_it_says(dtype: TableDtype) -> None:
    rows = rows_of(40)
    rows[4] = 0.0
    low, error = quantise_table(rows, dtype, name="t")
    apart = (low.rows(torch.arange(40)) - rows).abs().amax(dim=1)
    relative = apart / rows.abs().amax(dim=1).clamp(min=1e-30)
    assert error.max_absolute == pytest.approx(apart.max().item())
    assert error.mean_absolute == pytest.approx(apart.mean().item())
    assert error.max_relative == pytest.approx(relative.max().item())
    assert 0 < error.mean_relative < {"fp16": 1e-3, "int8": 8e-3, "int4": 0.14}[dtype]


@pytest.mark.parametrize("dtype", [TableDtype.FP16, TableDtype.INT4])
def test_numbers_beyond_fp16_are_refused_with_their_row(dtype: TableDtype) -> None:
    rows = rows_of(40)
    rows[31, 2] = -1e6
    with pytest.raises(TableOutOfRange, match=f"table ids: row 31 has numbers that {dtype} cannot hold"):
        quantise_table(rows, dtype, name="ids")
    quantise_table(rows, TableDtype.INT8, name="ids")


def quantise_a_large_table(folder: Path) -> None:
    (folder / "rows").touch()
    os.truncate(folder / "rows", TABLE_BYTES)
    meta = TensorMeta(shape=(TABLE_BYTES // 64, 16), dtype=torch.float32)
    low, _ = quantise_table(map_tensor(folder / "rows", 0, meta), TableDtype.INT8, name="t")
    assert sum(each.nbytes for each in low.state_dict().values()) == QUANTISED_BYTES


def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    assert memory_taken(quantise_a_large_table, tmp_path) < QUANTISED_BYTES

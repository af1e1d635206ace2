"""Tables of fewer bytes give fbgemm's own numbers, row by row and in bags."""

import pytest
import torch
from torch import Tensor

from exporter.config.schema import Pooling
from exporter.dtypes import TableDtype
from exporter.models.embedding.tables import LOW_TABLES, FloatTable, Int4Table, Int8Table, LowTable

WIDTHS = (1, 2, 3, 4, 6, 16, 31)
LOW = tuple(LOW_TABLES.values())


def rows_of(width: int) -> Tensor:
    """Rows of very different magnitudes, one of them zeros, one of the same number over and over."""
    generator = torch.Generator().manual_seed(width)
    rows = torch.randn(200, width, generator=generator) * torch.logspace(-4, 3, 200).unsqueeze(1)
    rows[3], rows[5] = 0.0, 1.25
    return rows


def table_of(kind: type[LowTable], width: int = 6) -> LowTable:
    return kind(kind.pack(rows_of(width)), width)


@pytest.mark.parametrize("width", WIDTHS)
def test_int4_is_fbgemms_dequantisation_bit_for_bit(width: int) -> None:
    rows = rows_of(width)
    filled = torch.cat([rows, rows[:, -1:].expand(-1, -width % 4)], dim=1)
    fused = torch.ops.fbgemm.FloatOrHalfToFusedNBitRowwiseQuantizedSBHalf(filled, 4)
    expected = torch.ops.fbgemm.FusedNBitRowwiseQuantizedSBHalfToFloatOrHalf(fused, 4, 0)[:, :width]
    assert torch.equal(table_of(Int4Table, width).rows(torch.arange(200)), expected)


@pytest.mark.parametrize("width", WIDTHS)
def test_int8_is_fbgemms_dequantisation_up_to_one_rounding(width: int) -> None:
    fused = torch.ops.fbgemm.FloatOrHalfToFused8BitRowwiseQuantized(rows_of(width))
    expected = torch.ops.fbgemm.Fused8BitRowwiseQuantizedToFloatOrHalf(fused, 0)
    table = table_of(Int8Table, width)
    assert isinstance(table, Int8Table)
    products = table.codes * table.scale_offset[:, :1]
    rounding = products.abs() * 2**-24
    assert ((table.rows(torch.arange(200)) - expected).abs() <= rounding + expected.abs() * 2**-23).all()


@pytest.mark.parametrize("kind", LOW)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_takes_the_bytes_that_are_promised(kind: type[LowTable], width: int) -> None:
    held = sum(tensor.nbytes for tensor in table_of(kind, width).state_dict().values())
    assert held == 200 * kind.dtype.row_bytes(width)
    assert TableDtype.FP32.row_bytes(width) == 4 * width


@pytest.mark.parametrize("kind", LOW)
@pytest.mark.parametrize("pooling", Pooling)
@pytest.mark.parametrize("weighted", [False, True])
def test_bags_are_those_of_an_fp32_table_of_the_same_rows(
    kind: type[LowTable], pooling: Pooling, weighted: bool
) -> None:
    low, same = table_of(kind), FloatTable(torch.empty(200, 6))
    ids, offsets = torch.tensor([5, 199, 7, 7, 0]), torch.tensor([0, 2, 2, 5])
    weights = torch.tensor([0.5, 2.0, -1.0, 3.0, 0.25]) if weighted else None
    with torch.no_grad():
        same.weight.copy_(low.rows(torch.arange(200)))
        expected = same.bags(ids, offsets, pooling, weights)
    assert torch.equal(low.bags(ids, offsets, pooling, weights), expected)
    assert not expected[1].any()  # the empty one


def test_rows_of_fp16_are_summed_in_fp32() -> None:
    generator = torch.Generator().manual_seed(7)
    table = FloatTable(torch.randn(50, 8, generator=generator).half())
    ids, offsets = torch.arange(50), torch.tensor([0, 20, 50])
    with torch.no_grad():
        rows, bags = table.rows(ids), table.bags(ids, offsets, Pooling.SUM)
    expected = torch.stack([table.weight[:20].double().sum(0), table.weight[20:].double().sum(0)])
    assert rows.dtype is bags.dtype is torch.float32
    assert (bags - expected).abs().max() < 1e-5
    assert (bags.half() - expected).abs().max() > 1e-4  # what rounding the sums would cost

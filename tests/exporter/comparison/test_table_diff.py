"""Two tables row by row: against plain formulas of numpy, whatever the tables are kept in."""

import numpy as np
import pytest
import torch
from torch import Tensor

from exporter.checkpoint.keymap import FREE_ID
from exporter.comparison import row_values
from exporter.comparison.row_values import PackagedTable, PublishedTable, RowsOfIds
from exporter.comparison.table_diff import compare_tables
from exporter.dtypes import TableDtype
from exporter.models.embedding.tables import LOW_TABLES

LOW = [TableDtype.FP16, TableDtype.INT8, TableDtype.INT4]


def rows_of(count: int, width: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def table(
    rows_RD: Tensor, dtype: TableDtype = TableDtype.FP32, ids: RowsOfIds | None = None
) -> PackagedTable:
    packed = {"weight": rows_RD} if dtype is TableDtype.FP32 else LOW_TABLES[dtype].pack(rows_RD)
    rows, width = rows_RD.shape
    return PackagedTable(name="t", path="a.t", rows=rows, width=width, dtype=dtype, ids=ids, tensors=packed)


def moved(rows_RD: Tensor, *changed: int) -> Tensor:
    new_RD = rows_RD.clone()
    new_RD[list(changed), 0] += torch.arange(1.0, len(changed) + 1)
    return new_RD


@pytest.mark.parametrize("piece", [1, 100, 1 << 20])  # one row, some rows, all rows at a time
def test_rows_are_counted_and_measured_as_by_numpys_formulas(
    monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(row_values, "PIECE", piece)
    old = rows_of(40)
    new = moved(old, 3, 17, 39)
    diff = compare_tables(table(old), table(new))
    assert (diff.rows_compared, diff.rows_changed, diff.share_changed) == (40, 3, 3 / 40)
    a, b = old.double().numpy(), new.double().numpy()
    norms = [np.linalg.norm(side, axis=1) for side in (a, b)]
    cosines = (a * b).sum(axis=1) / (norms[0] * norms[1])
    changes = np.abs(norms[1] - norms[0])
    assert diff.mean_cosine == pytest.approx(cosines.mean())
    assert diff.least_cosine == pytest.approx(cosines.min())
    assert diff.mean_norm_change == pytest.approx(changes.mean())
    assert diff.largest_norm_change == pytest.approx(changes.max())
    assert [(each.row, round(each.distance, 5)) for each in diff.most_changed] == [(39, 3), (17, 2), (3, 1)]
    assert diff.most_changed[0].cosine == pytest.approx(cosines[39])
    assert diff.norms is not None and diff.relative_changes is not None
    assert (sum(diff.norms.old), sum(diff.norms.new), sum(diff.relative_changes.new)) == (40, 40, 3)


@pytest.mark.parametrize("dtype", LOW)
def test_a_quantised_table_is_compared_in_the_rows_that_it_returns(dtype: TableDtype) -> None:
    old, new = rows_of(30), moved(rows_of(30), 4, 20)
    diff = compare_tables(table(old, dtype), table(new, dtype))
    assert (diff.rows_changed, {each.row for each in diff.most_changed}) == (2, {4, 20})
    stored = [
        LOW_TABLES[dtype](LOW_TABLES[dtype].pack(side), 6).rows(torch.arange(30)) for side in (old, new)
    ]
    distances = (stored[1] - stored[0]).double().norm(dim=1)
    assert diff.most_changed[0].distance == pytest.approx(float(distances.max()))


@pytest.mark.parametrize("dtype", LOW)
def test_a_table_in_fewer_bytes_than_before_differs_by_its_rounding(dtype: TableDtype) -> None:
    rows = rows_of(30)
    diff = compare_tables(table(rows), table(rows, dtype))
    assert diff.differs and diff.rows_changed > 20
    assert diff.least_cosine is not None and 0.98 < diff.least_cosine < 1


def test_equal_tables_do_not_differ() -> None:
    diff = compare_tables(table(rows_of(5)), table(rows_of(5)))
    assert not diff.differs
    assert (diff.rows_changed, diff.mean_cosine, diff.least_cosine, diff.most_changed) == (0, 1, 1, ())


def test_rows_at_the_end_are_added_or_removed() -> None:
    grown = compare_tables(table(rows_of(5)), table(torch.cat([rows_of(5), rows_of(2)])))
    assert (grown.rows_added, grown.rows_removed, grown.rows_changed, grown.differs) == (2, 0, 0, True)
    shrunk = compare_tables(table(rows_of(5)), table(rows_of(5)[:3]))
    assert (shrunk.rows_added, shrunk.rows_removed, shrunk.rows_compared) == (0, 2, 3)


def test_a_table_on_one_side_and_one_of_another_width_are_said_as_such() -> None:
    gone = compare_tables(table(rows_of(5)), None)
    assert (gone.old_rows, gone.new_rows, gone.rows_removed, gone.differs) == (5, None, 5, True)
    assert compare_tables(None, table(rows_of(5))).rows_added == 5
    wider = compare_tables(table(rows_of(5)), table(rows_of(5, width=8)))
    assert wider.differs and "different widths" in wider.note and wider.rows_compared == 0


def test_rows_of_zeros_and_numbers_that_are_not_finite_do_not_spoil_the_sums() -> None:
    old, new = rows_of(6), rows_of(6)
    old[0] = 0
    old[1] = new[1] = 0
    new[2, 3], old[3, 0] = torch.nan, torch.inf
    new[4] = torch.nan
    old[4] = torch.nan  # unchanged
    diff = compare_tables(table(old), table(new))
    assert (diff.rows_changed, diff.rows_not_finite) == (3, 3)  # equal NaNs are no change
    assert diff.mean_cosine == pytest.approx(2 / 3)  # rows 0: 0, 1 and 5: 1
    assert diff.least_cosine == 0
    assert [each.row for each in diff.most_changed] == [0]
    assert "NaN" not in diff.model_dump_json() and "Infinity" not in diff.model_dump_json()


def id_map(ids: list[int], rows: list[int], size: int) -> RowsOfIds:
    free = size - len(ids)
    taken = torch.tensor([*ids, *[FREE_ID] * free])
    return RowsOfIds(ids=taken, rows=torch.tensor([*rows, *range(size - free, size)]))


def test_rows_behind_a_map_are_compared_by_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """The new map holds the ids in other rows: by number, every row would have changed."""
    monkeypatch.setattr(row_values, "PIECE", 1)
    rows = rows_of(5)
    old: PublishedTable = table(rows, ids=id_map([7, 11, 10**12], [0, 1, 2], 5))
    new_rows = rows[[2, 0, 1, 3, 4]].clone()
    new_rows[2, 0] += 1  # of the id 11
    new = table(new_rows, ids=id_map([7, 11, 500], [1, 2, 3], 5))
    diff = compare_tables(old, new)
    assert diff.by_id
    assert (diff.rows_compared, diff.rows_changed, diff.rows_added, diff.rows_removed) == (2, 1, 1, 1)
    assert [each.row for each in diff.most_changed] == [11]


def test_maps_without_an_id_in_common_compare_nothing() -> None:
    empty = table(rows_of(3), ids=id_map([], [], 3))
    diff = compare_tables(table(rows_of(3), ids=id_map([1, 2], [0, 1], 3)), empty)
    assert (diff.rows_compared, diff.rows_removed, diff.mean_cosine) == (0, 2, None)

"""Tables and maps of ids are told from other weights, by the manifest."""

import pytest
import torch

from exporter.comparison.row_values import PackagedTable
from exporter.comparison.tower_weights import compare_weights, take_tables
from exporter.dtypes import TableDtype
from exporter.errors import InvalidArtifact
from exporter.lowering.tables import table_entry, table_modules, trained_dtype
from exporter.manifest import TableEntry
from exporter.models.embedding.tables import FloatTable
from tests.exporter.models.recorded import recorded_tower

TRAINED = TableDtype.FP32


def entries_of(module: torch.nn.Module) -> list[TableEntry]:
    found = table_modules(module)
    return [
        table_entry(path, tuple(each.weight.shape), trained_dtype(each), trained_dtype(each), None)
        for path, each in found.items()
        if isinstance(each, FloatTable)
    ]


def test_tables_with_maps_of_ids_have_theirs() -> None:
    module = recorded_tower("dcn_v2", "model").module
    weights, entries = dict(module.state_dict()), entries_of(module)
    tables = take_tables(entries, weights)
    mapped = {table.name for table in tables.values() if table.ids is not None}
    assert mapped == {"user_zid_emb", "z_emb", "zs_emb"}
    assert len(tables) == len(entries) > len(mapped)
    left = {name for name in weights if "_mch_" in name or name.endswith("emb.weight")}
    assert left == set()
    for table in tables.values():
        rows = torch.tensor([table.rows - 1, 0])
        torch.testing.assert_close(table.read(rows), module.get_parameter(f"{table.path}.weight")[rows])


@pytest.mark.parametrize("rows", [None, 4])
def test_a_table_that_is_missing_or_of_another_size_is_named(rows: int | None) -> None:
    weights = {} if rows is None else {"a.t.weight": torch.ones(rows, 2)}
    entry = table_entry("a.t", (5, 2), TRAINED, TRAINED, None)
    with pytest.raises(InvalidArtifact, match=r"no table a\.t of 5 rows, which the manifest names"):
        take_tables([entry], weights)


def test_a_table_of_one_row_is_a_table() -> None:
    [table] = take_tables(
        [table_entry("t", (1, 2), TRAINED, TRAINED, None)], {"t.weight": torch.ones(1, 2)}
    ).values()
    assert isinstance(table, PackagedTable)
    assert table.read(torch.tensor([0])).tolist() == [[1.0, 1.0]]


def test_weights_that_moved_furthest_come_first_after_those_that_cannot_be_compared() -> None:
    old = {
        "a": torch.ones(4),
        "b": torch.ones(4),
        "same": torch.arange(3),
        "wide": torch.ones(2),
        "gone": torch.ones(1),
    }
    new = {
        "a": torch.full((4,), 1.5),
        "b": torch.tensor([1.0, 1, 1, 3]),
        "same": torch.arange(3),
        "wide": torch.ones(3),
    }
    found = compare_weights(old, new)
    assert (found.total, found.changed) == (5, 4)
    assert [each.name for each in found.listed] == ["gone", "wide", "b", "a"]
    b = found.listed[2]
    assert (b.numbers_changed, b.largest) == (1, 2)
    assert b.relative == pytest.approx((4 / 4) ** 0.5)


def test_a_weight_that_is_not_finite_has_no_distance() -> None:
    [diff] = compare_weights({"a": torch.ones(2)}, {"a": torch.tensor([1.0, torch.nan])}).listed
    assert (diff.numbers_changed, diff.relative) == (1, None)
    assert "NaN" not in diff.model_dump_json()

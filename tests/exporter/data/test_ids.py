import numpy as np
import pytest

from exporter.config.schema import Feature, FeatureKind, IdMapKind, TableConfig
from exporter.data.ids import probe_ids


def feature(rows: int, id_map: IdMapKind | None = None) -> Feature:
    table = TableConfig(name="t", rows=rows, dim=2, id_map=id_map)
    return Feature(name="f", bare_name="f", kind=FeatureKind.ID, table=table)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 1_000_000_000_000])
@pytest.mark.parametrize("count", [0, 1, 2, 17, 300])
def test_ids_begin_with_both_ends_of_the_table(rows: int, count: int) -> None:
    ids = probe_ids(feature(rows), count, {}).tolist()
    assert len(ids) == count
    assert ids[:2] == [0, rows - 1][: min(count, rows)] + ids[min(count, rows) : 2]
    assert all(0 <= each < rows for each in ids)


def test_many_ids_name_every_row_of_a_small_table() -> None:
    assert set(probe_ids(feature(50), 200, {}).tolist()) == set(range(50))


def test_ids_of_a_map_are_those_it_knows_and_some_that_it_does_not() -> None:
    known = np.array([900, -5, 30, 900, 10**15, 30], dtype=np.int64)
    ids = set(probe_ids(feature(4, IdMapKind.ZCH), 40, {"f": known}).tolist())
    assert set(known.tolist()) <= ids
    assert {10**15 + 1, -6, -1} <= ids


@pytest.mark.parametrize("known", [{}, {"f": np.zeros(0, dtype=np.int64)}])
def test_an_empty_map_is_asked_for_strangers(known: dict[str, np.ndarray]) -> None:
    assert {0, -1, 2**63 - 2} <= set(probe_ids(feature(4, IdMapKind.ZCH), 8, known).tolist())


def test_ids_at_the_ends_of_their_type_have_no_neighbours_outside_it() -> None:
    known = np.array([-(2**63), 2**63 - 2], dtype=np.int64)
    assert len(probe_ids(feature(4, IdMapKind.ZCH), 30, {"f": known})) == 30

"""Rows are read by what they unfold to, whatever their number, and come out whole and in order."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.config.schema import Feature
from exporter.data import parquet
from exporter.data import rows as batches_of_rows
from exporter.data.batch import verification_batches
from exporter.data.memory_limit import limit_memory, memory_in_use
from exporter.data.parquet import RowBatch, open_parquet
from exporter.data.rows import read_rows
from exporter.data.values import count_values
from exporter.dims.plan import plan_dims
from exporter.errors import InvalidRows
from tests.hostile.tables import zeros


def batches_of(path: Path, table: pa.Table, *, rows: int, **options: object) -> list[RowBatch]:
    pq.write_table(table, path, **options)
    return list(open_parquet(str(path)).batches(table.column_names, rows_per_batch=rows))


def whole(batches: list[RowBatch]) -> pa.Table:
    """All rows, whose numbers go on from batch to batch."""
    ends = np.cumsum([batch.table.num_rows for batch in batches])
    assert [batch.first_row for batch in batches] == [0, *ends[:-1]]
    return pa.concat_tables(batch.table for batch in batches)


@pytest.mark.parametrize("group", [7, 1000])
def test_a_batch_holds_a_bounded_number_of_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    monkeypatch.setattr(parquet, "_BATCH_VALUES", 50)
    lists = [list(range(length)) for length in [0, 1, 3, 40, 49, 2] * 20]
    table = pa.table({"a": lists, "b": pa.array(range(len(lists)))})
    batches = batches_of(tmp_path / "x.parquet", table, rows=64, row_group_size=group)
    assert whole(batches).equals(table)
    assert max(sum(count_values(each.combine_chunks()) for each in b.table.columns) for b in batches) <= 50


def test_a_row_of_too_many_values_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_BATCH_VALUES", 50)
    with pytest.raises(InvalidRows, match="row 70 unfolds to more than the 50 values"):
        batches_of(tmp_path / "x.parquet", pa.table({"a": [[1]] * 70 + [[1] * 51]}), rows=1024)


# In a process of its own: what writing or other tests have freed is memory to read into, beside the limit.
READ = """
import json, sys
import pyarrow.compute as pc
from exporter.data import parquet

parquet._GROWTH = int(sys.argv[2])
batches = [batch.table for batch in parquet.open_parquet(sys.argv[1]).batches(["a"], rows_per_batch=1024)]
values = sum(pc.sum(pc.list_value_length(batch["a"])).as_py() for batch in batches)
print(json.dumps([values, batches[-2].num_rows]))
"""


@pytest.mark.parametrize(("growth", "rows"), [(8 << 20, 15), (1 << 30, 36)])
def test_rows_are_read_again_in_smaller_steps_where_they_take_too_much_memory(
    tmp_path: Path, growth: int, rows: int
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(zeros([0] * 2000 + [100_000] * 90 + [1]), path, write_statistics=False)
    done = subprocess.run([sys.executable, "-c", READ, path, str(growth)], capture_output=True, check=True)
    assert json.loads(done.stdout) == [9_000_001, rows]


def test_texts_that_many_rows_share_are_counted_in_each() -> None:
    shared = pa.DictionaryArray.from_arrays(pa.array([0, 0, 1, None]), pa.array(["x" * 100, "y"]))
    assert count_values(shared) == (100 + 100 + 1) // 2


@pytest.mark.parametrize(
    ("array", "count"),
    [
        (pa.array([1, None, 3]), 3),
        (pa.array([[1, 2], None, []]), 3),
        (pa.array([[[1, 2, 3]], [[4], [5]]]), 5),
        (pa.array([[(1, 1)], [(2, 2), (3, 3)]], type=pa.map_(pa.int8(), pa.int8()))[1:], 4),
        (pa.array([[1, 2], [3, 4]], type=pa.list_(pa.int64(), 2)), 4),
        (pa.array([[True] * 9]), 9),
        (pa.nulls(4), 4),
    ],
)
def test_values_are_counted_at_all_depths(array: pa.Array, count: int) -> None:
    assert count_values(array) == count


def test_columns_whose_names_have_dots_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "MOST_ROW_VALUES", 10)
    with pytest.raises(InvalidRows, match="11 values in 1 rows"):
        batches_of(tmp_path / "x.parquet", pa.table({"a.b": [[1] * 11]}), rows=1024)


def test_sample_rows_end_where_they_hold_enough(
    fixtures: Path, user_features: tuple[Feature, ...], tmp_path: Path
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.concat_tables([pq.read_table(fixtures / "data" / "train.parquet")] * 9), path)
    assert len(read_rows(str(path), user_features)) == 9 * 256
    assert len(read_rows(str(path), user_features, most_values=1)) == 1024


def test_long_rows_are_cut_before_they_fill_a_large_batch(
    fixtures: Path, user_features: tuple[Feature, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_rows(str(fixtures / "data" / "ref_b32.parquet"), user_features)
    plan = plan_dims(user_features, max_batch_size=4096)
    monkeypatch.setattr(batches_of_rows, "_BATCH_VALUES", 4096 * len(user_features) * 2)
    largest = {batch.name: batch for batch in verification_batches(rows, plan)}["batch_4096"]
    assert all(tensor.shape[0] <= 4096 * 2 for tensor in largest.inputs.values())
    assert rows.within(8) is rows


def test_the_limit_on_memory_ends_with_its_context() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(MemoryError), limit_memory(memory_in_use() + (100 << 20)):
        np.ones(200 << 20, dtype=np.int8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(np.ones(200 << 20, dtype=np.int8))

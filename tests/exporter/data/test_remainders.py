"""Sizes of cases leave every remainder that compiled code treats apart."""

from pathlib import Path

import numpy as np
import pytest

from exporter.config.schema import Feature
from exporter.data.ragged import Counts
from exporter.data.remainders import Remainders, fill_last, find_classes, is_edge
from exporter.data.rows import Rows, read_rows
from exporter.data.sweep import agreeing_batches
from exporter.dims.plan import BATCH, plan_dims
from exporter.dims.torch_dims import input_sizes

EVENTS, TAGS = "seq_uih_seq", "values_user_id"


@pytest.fixture(scope="module")
def rows(fixtures: Path, user_features: tuple[Feature, ...]) -> Rows:
    return read_rows(str(fixtures / "data" / "ref_b32.parquet"), user_features)


@pytest.mark.parametrize(
    ("size", "classes"),
    [
        (7, set()),
        (9, {(8, 1)}),
        (65, {(8, 1), (16, 1), (64, 1)}),
        (127, {(8, 7), (16, 15), (64, 63)}),
        (128, {(8, 0), (16, 0), (64, 0), (128, 0)}),
        (100, {(8, 4), (16, 4)}),
    ],
)
def test_a_size_has_a_class_of_each_block_that_fits(size: int, classes: set[tuple[int, int]]) -> None:
    assert find_classes(size) == classes


def test_edges_leave_one_or_lack_one() -> None:
    assert [size for size in range(200) if is_edge(size)] == [65, 127, 129, 191, 193]


def test_sizes_are_chosen_for_what_is_missing() -> None:
    remainders = Remainders()
    assert remainders.choose("n", range(16, 32)) == list(range(16, 32))
    remainders.add("n", [17, 26])
    assert remainders.choose("n", range(16, 20)) == [16, 19]
    assert remainders.choose("other", range(16, 20)) == [16, 17, 18, 19]
    remainders.add("n", range(16, 32))
    assert remainders.choose("n", range(16, 32)) == []
    assert remainders.choose("n", range(65, 70)) == [65]


def test_the_last_counts_are_raised_as_far_as_each_may() -> None:
    counts: Counts = np.array([3, 0, 1, 4])
    assert fill_last(counts, 4, 3).tolist() == [3, 0, 4, 4]
    assert fill_last(counts, 4, 5).tolist() == [3, 2, 4, 4]
    assert fill_last(counts, 9, 5).tolist() == [3, 0, 1, 9]
    assert fill_last(counts, 9, 0).tolist() == counts.tolist()


def test_totals_are_completed_within_bounds() -> None:
    remainders = Remainders()
    remainders.add("n", [64])
    counts: Counts = np.array([30, 30, 0])
    assert int(remainders.complete("n", counts, 99, None).sum()) == 65
    assert int(remainders.complete("n", counts, 99, 62).sum()) <= 62
    assert remainders.complete("n", counts, 30, None).tolist() == [30, 30, 5]
    assert remainders.complete("n", counts[:0], 9, None).tolist() == []


@pytest.mark.parametrize("largest", [48, 100, 512, 4096])
def test_cases_leave_every_remainder(rows: Rows, user_features: tuple[Feature, ...], largest: int) -> None:
    plan = plan_dims(user_features, max_batch_size=largest)
    sizes = [input_sizes(plan, batch.inputs) for batch in agreeing_batches(rows, plan)]
    for dim in (BATCH, EVENTS, TAGS):
        tried = [each[dim] for each in sizes]
        assert {size % 8 for size in tried if size > 8} == set(range(8)), dim
        assert len({size % 16 for size in tried if size > 16}) >= 12, dim
        if dim != BATCH or largest > 64:
            assert any(size % 64 == 1 for size in tried if size > 64), dim
        if dim != BATCH or largest > 128:
            assert any(size % 64 == 63 for size in tried if size > 64), dim
    assert {each[BATCH] % 16 for each in sizes if each[BATCH] >= 16} == set(range(16))


@pytest.mark.parametrize("largest", [129, 200, 512, 4096])
def test_one_row_more_than_whole_blocks_is_tried_with_rows_as_they_are(
    rows: Rows, user_features: tuple[Feature, ...], largest: int
) -> None:
    plan = plan_dims(user_features, max_batch_size=largest)
    as_they_are = [b for b in agreeing_batches(rows, plan) if "stretched" not in b.note and not b.beyond_rows]
    sizes = {input_sizes(plan, batch.inputs)[BATCH] for batch in as_they_are}
    assert any(size % 64 == 1 for size in sizes if size > 64)


def test_the_longest_rows_leave_every_rest_of_a_vector(
    rows: Rows, user_features: tuple[Feature, ...]
) -> None:
    plan = plan_dims(user_features, max_batch_size=512)
    longest = [int(batch.inputs["uih_seq__video_id.lengths"].max()) for batch in agreeing_batches(rows, plan)]
    assert {length % 8 for length in longest if length > 8} == set(range(8))


def test_numbers_beyond_those_of_rows_are_tried(rows: Rows, user_features: tuple[Feature, ...]) -> None:
    plan = plan_dims(user_features, max_batch_size=64)
    cases = {batch.name: batch for batch in agreeing_batches(rows, plan)}
    assert rows.dense
    for feature in rows.dense:
        real = rows.columns[feature.name].values
        largest = float(np.abs(real).max()) or 1.0
        tried = cases["low_counts"].inputs[f"{feature.name}.values"].flatten().tolist()
        assert {0.0, 4 * largest, -4 * largest} <= set(tried), feature.name
        assert set(tried) & set(real.tolist()), feature.name
        assert any(0 < value < largest / 1000 for value in tried), feature.name
        held = cases["held_counts"].inputs[f"{feature.name}.values"].flatten().tolist()
        assert set(held) <= {*real.tolist(), 0.0}
    assert cases["low_counts"].beyond_rows and not cases["held_counts"].beyond_rows

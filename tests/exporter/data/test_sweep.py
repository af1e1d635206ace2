from pathlib import Path

import pytest

from exporter.config.schema import Feature
from exporter.data.batch import Rows, read_rows
from exporter.data.sweep import sweep
from exporter.dims.plan import BATCH, DimPlan, plan_dims
from exporter.dims.torch_dims import input_sizes


@pytest.fixture(scope="module")
def plan(user_features: tuple[Feature, ...]) -> DimPlan:
    return plan_dims(user_features, max_batch_size=48)


@pytest.fixture(scope="module")
def rows(fixtures: Path, user_features: tuple[Feature, ...]) -> Rows:
    return read_rows(str(fixtures / "data" / "ref_b32.parquet"), user_features)


def lengths(rows: Rows, plan: DimPlan, *, seed: int) -> dict[str, list[int]]:
    drawn = sweep(rows, plan, seed=seed, count=6)
    return {batch.name: batch.inputs["uih_seq__video_id.lengths"].tolist() for batch in drawn}


def test_sizes_are_drawn_within_the_plan_and_differ(rows: Rows, plan: DimPlan) -> None:
    sizes = [input_sizes(plan, batch.inputs) for batch in sweep(rows, plan, seed=1, count=6)]
    batches = [each[BATCH] for each in sizes]
    assert all(1 <= size <= 48 for size in batches)
    assert len(set(batches)) >= 4
    highs = {dim.name: dim.high for dim in plan.dims}
    assert all((highs[name] or size) >= size for each in sizes for name, size in each.items())


def test_lengths_are_those_of_the_rows(rows: Rows, plan: DimPlan) -> None:
    observed = set(rows.columns["uih_seq__video_id"].per_row.tolist())
    drawn = {name: each for name, each in lengths(rows, plan, seed=1).items() if name.startswith("random")}
    assert {length for each in drawn.values() for length in each} <= observed


def test_a_seed_gives_the_same_sizes_again(rows: Rows, plan: DimPlan) -> None:
    assert lengths(rows, plan, seed=7) == lengths(rows, plan, seed=7) != lengths(rows, plan, seed=8)


def test_corners_are_equal_lengths_short_ones_and_one_long_row(rows: Rows, plan: DimPlan) -> None:
    drawn = lengths(rows, plan, seed=1)
    assert len(set(drawn["equal_histories"])) == 1
    assert drawn["none_one_and_two"] == [0, 1, 2, 0, 1]
    assert sorted(drawn["one_long_among_short"])[:-1] == [1, 1, 1, 1] != drawn["one_long_among_short"][1:]

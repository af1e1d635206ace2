from pathlib import Path

import pytest

from exporter.config.schema import Feature
from exporter.data.rows import Rows, read_rows
from exporter.data.sweep import agreeing_batches, sweep
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


def test_lengths_are_those_of_the_rows_or_stretched_in_turn(rows: Rows, plan: DimPlan) -> None:
    observed = set(rows.columns["uih_seq__video_id"].per_row.tolist())
    drawn = lengths(rows, plan, seed=1)
    as_they_are = {length for number in (0, 2, 4) for length in drawn[f"random_{number}"]}
    stretched = {length for number in (1, 3, 5) for length in drawn[f"random_{number}"]}
    assert as_they_are <= observed
    assert not stretched <= observed
    assert max(stretched) <= 96


def test_no_size_is_drawn_twice_before_all_have_been(rows: Rows, plan: DimPlan) -> None:
    chosen = {1, 2, 3, 7, 32, 48}
    few, all_others = (
        [input_sizes(plan, batch.inputs)[BATCH] for batch in sweep(rows, plan, seed=3, count=count)]
        for count in (20, 48 - len(chosen))
    )
    assert len(set(few)) == 20
    assert set(all_others) == set(range(1, 49)) - chosen


def test_more_sizes_than_there_are_can_be_drawn(rows: Rows, plan: DimPlan) -> None:
    drawn = [input_sizes(plan, batch.inputs)[BATCH] for batch in sweep(rows, plan, seed=3, count=100)]
    assert set(drawn) == set(range(1, 49))
    assert len(drawn) == 100


def test_two_hundred_draws_have_every_small_size(rows: Rows, user_features: tuple[Feature, ...]) -> None:
    plan = plan_dims(user_features, max_batch_size=512)
    drawn = {input_sizes(plan, batch.inputs)[BATCH] for batch in sweep(rows, plan, seed=5, count=200)}
    assert set(range(1, 41)) - {1, 2, 3, 7, 32} <= drawn
    assert max(drawn) > 400


def test_a_seed_gives_the_same_sizes_again(rows: Rows, plan: DimPlan) -> None:
    assert lengths(rows, plan, seed=7) == lengths(rows, plan, seed=7) != lengths(rows, plan, seed=8)


@pytest.mark.parametrize("largest", [48, 512, 4096])
def test_cases_leave_every_rest_of_a_vector(
    rows: Rows, user_features: tuple[Feature, ...], largest: int
) -> None:
    plan = plan_dims(user_features, max_batch_size=largest)
    sizes = [input_sizes(plan, batch.inputs)[BATCH] for batch in agreeing_batches(rows, plan)]
    assert {size % 8 for size in sizes} == set(range(8))
    assert len({size % 16 for size in sizes}) >= 8

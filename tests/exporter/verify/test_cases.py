"""The cases of the gate, and the sizes that they are stated to try."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exporter.config.schema import Feature, FeatureKind, Sequence, TableConfig
from exporter.data.rows import NamedBatch, Rows, read_rows
from exporter.dims.entries import Tried, dim_entries, tried_between
from exporter.dims.plan import DimPlan, plan_dims, plan_group_tensors
from exporter.dims.torch_dims import input_sizes
from exporter.manifest import CaseKind, CaseReport, TriedSizes
from exporter.verify.cases import make_cases, measure_tried
from tests.exporter.models.recorded import (
    MODELS,
    pipeline_of,
    recorded_parts,
    recorded_tower,
    rows_of,
    tower_of,
)

TOWERS = [(model, part) for model in MODELS for part in recorded_parts(model)]


def sample(model: str, part: str, max_batch_size: int) -> tuple[Rows, DimPlan]:
    features = recorded_tower(model, tower_of(part)).config.pipeline.features
    path = rows_of(model)
    path = path.with_name("items.parquet") if part in ("item_tower", "embedding") else path
    return read_rows(str(path), features), plan_dims(features, max_batch_size=max_batch_size)


def tried_in(cases: Collection[NamedBatch], plan: DimPlan) -> Tried:
    """Return what a gate has tried that ran all of these cases, and each of them passed."""
    ran = [
        CaseReport(name=case.name, kind=CaseKind.AGREES, sizes=input_sizes(plan, case.inputs), passed=True)
        for case in cases
    ]
    return measure_tried(cases, plan, ran)


def test_cases_that_did_not_run_as_they_were_made_are_not_counted() -> None:
    rows, plan = sample("deepfm", "model", 64)
    cases = make_cases(rows, plan).must_agree
    ran = [
        CaseReport(name=case.name, kind=CaseKind.AGREES, sizes=input_sizes(plan, case.inputs), passed=True)
        for case in cases
        if case.name.startswith("batch_")
    ]
    tried = measure_tried(cases, plan, ran)
    assert tried.sizes["batch"] == TriedSizes(smallest=1, largest=64)
    assert tried.shares["values_user_tags"].largest < 17
    assert tried.sizes["values_user_tags"].largest < 1024


@pytest.mark.parametrize(("model", "part"), TOWERS)
@pytest.mark.parametrize("max_batch_size", [2, 512])
def test_every_dim_is_tried_at_its_bounds(model: str, part: str, max_batch_size: int) -> None:
    rows, plan = sample(model, part, max_batch_size)
    cases = make_cases(rows, plan).must_agree
    assert len({case.name for case in cases}) == len(cases)
    for dim in dim_entries(plan, tried_in(cases, plan)):
        assert dim.tried is not None
        assert dim.tried.smallest == dim.low
        assert dim.tried.largest == dim.high if dim.high is not None else dim.tried.largest > 4096
        if dim.share is not None:
            assert dim.share.tried == TriedSizes(smallest=0, largest=dim.share.high or 4097)


@pytest.mark.parametrize(("model", "part"), TOWERS)
def test_both_ends_of_every_table_are_looked_up_by_every_feature(model: str, part: str) -> None:
    rows, plan = sample(model, part, 64)
    cases = {case.name: case.inputs for case in make_cases(rows, plan).must_agree}
    for feature in rows.features:
        if feature.table is not None and feature.table.id_map is None:
            ids = cases["low_counts"][f"{feature.name}.values"]
            assert {0, feature.table.rows - 1} <= set(ids.tolist()), feature.name
            assert int(ids.min()) >= 0
            assert int(ids.max()) < feature.table.rows


@pytest.mark.parametrize("rows_at_most", [1, 3])
def test_rows_that_hold_much_are_gone_beyond(tmp_path: Path, rows_at_most: int) -> None:
    pq.write_table(pa.table({"tags": [[1] * 3000, [2]][:rows_at_most]}), tmp_path / "rows.parquet")
    table = TableConfig(name="tags_emb", rows=99, dim=2)
    features = (Feature(name="tags", bare_name="tags", kind=FeatureKind.ID, value_dim=0, table=table),)
    rows, plan = read_rows(str(tmp_path / "rows.parquet"), features), plan_dims(features, max_batch_size=8)
    tried = tried_in(make_cases(rows, plan).must_agree, plan)
    assert tried.shares["values_tags"] == TriedSizes(smallest=0, largest=16_385)


def test_events_of_a_sequence_without_a_length_go_beyond_the_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"seq__a": [[1, 2], []]}), tmp_path / "rows.parquet")
    table = TableConfig(name="a_emb", rows=99, dim=2)
    parent = Sequence(name="seq", length=0, delim="|")
    features = (Feature(name="seq__a", bare_name="a", kind=FeatureKind.ID, sequence=parent, table=table),)
    rows, plan = read_rows(str(tmp_path / "rows.parquet"), features), plan_dims(features, max_batch_size=8)
    tried = tried_in(make_cases(rows, plan).must_agree, plan)
    assert tried.shares["seq_seq"] == TriedSizes(smallest=0, largest=1025)


def test_what_was_tried_of_a_row_is_what_groups_are_padded_to() -> None:
    rows, plan = sample("multi_tower_din", "model", 64)
    entries = dim_entries(plan, tried_in(make_cases(rows, plan).must_agree, plan))
    between = plan_group_tensors(pipeline_of("multi_tower_din"), max_batch_size=64)
    padded = {dim.name: dim for dim in dim_entries(between, tried_between(entries))}
    assert padded["longest_click_seq"].tried == TriedSizes(smallest=0, largest=20)
    assert padded["batch"].tried == TriedSizes(smallest=1, largest=64)
    assert all(dim.share is None for dim in padded.values())


def test_the_largest_stretched_batch_is_lightened_with_the_largest_ordinary_one() -> None:
    rows, plan = sample("hstu_match", "user_tower", 512)
    cases = make_cases(rows, plan)
    lighter = cases.lighten(0.5)
    events = "uih_seq__video_id.lengths"
    full, less, many = (
        {case.name: case.inputs[events] for case in each.must_agree}[name]
        for each, name in ((cases, "full_batch"), (lighter, "full_batch"), (cases, "batch_512"))
    )
    assert len(less) == len(full) == 512
    assert int(full.sum()) == 512 * 96
    assert int(less.sum()) <= 0.51 * int(many.sum())
    others = {case.name for case in cases.must_agree}
    assert others <= {case.name for case in lighter.must_agree}
    for case in lighter.must_agree:
        if case.name in ("batch_512", lighter.ordinary[-2].name):
            assert int(case.inputs[events].sum()) <= 0.26 * int(many.sum())
    assert len(lighter.must_agree) == len({case.name for case in lighter.must_agree})


def test_packages_with_strict_bounds_are_tried_with_all_of_it() -> None:
    rows, plan = sample("hstu_match", "user_tower", 512)
    dims = tuple(
        replace(dim, high=dim.high or 65_537, share=dim.share and replace(dim.share, refused_above=96))
        for dim in plan.dims
    )
    cases = make_cases(rows, replace(plan, dims=dims))
    assert cases.lighten(0.5) is cases


def test_random_cases_are_lightened_with_the_largest_one_and_keep_their_rows() -> None:
    rows, plan = sample("hstu_match", "user_tower", 512)
    cases = make_cases(rows, plan)
    events = "uih_seq__video_id.lengths"
    usual = {case.name: case.inputs[events] for case in cases.must_agree}
    lighter = {case.name: case.inputs[events] for case in cases.lighten(0.2).must_agree}
    names = [name for name in usual if name.startswith("random_")]
    assert names
    for name in names:
        assert len(lighter[name]) == len(usual[name])
        assert int(lighter[name].sum()) <= max(0.055 * int(usual["batch_512"].sum()), len(lighter[name]))
    assert any(int(lighter[name].sum()) < int(usual[name].sum()) // 2 for name in names)

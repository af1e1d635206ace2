"""Batches for tracing and verification come from real rows and reach every edge."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from exporter.config.schema import Feature, FeatureKind, Sequence, TableConfig
from exporter.data.batch import contradicting_batches, trace_inputs, verification_batches
from exporter.data.rows import NamedBatch, Rows, read_rows
from exporter.dims.plan import BATCH, DimPlan, plan_dims
from exporter.dims.sizes import sizes_of
from exporter.errors import InvalidRows
from tests.exporter.data.conftest import TowerFeatures


@pytest.fixture(scope="module")
def plan(user_features: tuple[Feature, ...]) -> DimPlan:
    return plan_dims(user_features, max_batch_size=48)


@pytest.fixture(scope="module")
def rows(fixtures: Path, user_features: tuple[Feature, ...]) -> Rows:
    return read_rows(str(fixtures / "data" / "ref_b32.parquet"), user_features)


def agreed_sizes(inputs: dict[str, Tensor], plan: DimPlan) -> dict[str, int]:
    """The size of each dim, which every input that carries it has."""
    shapes = {name: tuple(tensor.shape) for name, tensor in inputs.items()}
    sizes = sizes_of(plan, shapes)
    for tensor in plan.inputs:
        assert shapes[tensor.name] == tuple(sizes.get(str(axis), axis) for axis in tensor.shape), tensor.name
    return sizes


def history(inputs: dict[str, Tensor]) -> list[int]:
    return inputs["uih_seq__video_id.lengths"].tolist()


def test_traces_at_different_sizes_of_at_least_2(rows: Rows, plan: DimPlan) -> None:
    inputs = trace_inputs(rows, plan)
    sizes = agreed_sizes(inputs, plan)
    assert len(set(sizes.values())) == len(plan.dims)
    assert min(sizes.values()) >= 2
    assert list(inputs) == [tensor.name for tensor in plan.inputs]


def test_trace_inputs_are_consistent(rows: Rows, plan: DimPlan) -> None:
    inputs = trace_inputs(rows, plan)
    for name, tensor in inputs.items():
        if name.endswith(".lengths"):
            assert int(tensor.sum()) == len(inputs[name.replace(".lengths", ".values")])


@pytest.mark.parametrize("lists", [[[]], [[1]], [[1, 2]]])
def test_traces_from_a_single_row_whatever_it_holds(
    user_features: tuple[Feature, ...], fixtures: Path, tmp_path: Path, lists: list[list[int]]
) -> None:
    table = pq.read_table(fixtures / "data" / "ref_b1.parquet")
    for index, name in enumerate(table.column_names):
        if name.startswith("uih_seq__"):
            table = table.set_column(index, name, pa.array(lists, pa.list_(pa.int64())))
    pq.write_table(table, tmp_path / "one.parquet")
    plan = plan_dims(user_features, max_batch_size=8)
    rows = read_rows(str(tmp_path / "one.parquet"), user_features)
    assert len(set(agreed_sizes(trace_inputs(rows, plan), plan).values())) == len(plan.dims)
    assert all(agreed_sizes(batch.inputs, plan) for batch in verification_batches(rows, plan))


def test_every_verified_batch_keeps_to_the_plan(rows: Rows, plan: DimPlan) -> None:
    for batch in verification_batches(rows, plan):
        for name, size in agreed_sizes(batch.inputs, plan).items():
            dim = plan.dim(name)
            assert dim.low <= size
            assert dim.high is None or size <= dim.high


def test_verifies_at_the_planned_batch_sizes_repeating_rows_where_they_run_out(
    rows: Rows, plan: DimPlan
) -> None:
    by_name = {batch.name: batch for batch in verification_batches(rows, plan)}
    for size in (1, 2, 3, 7, 32, 48):
        assert agreed_sizes(by_name[f"batch_{size}"].inputs, plan)[BATCH] == size
    assert by_name["batch_48"].note == "32 rows, repeated"
    assert not by_name["batch_32"].note


def test_verifies_histories_of_every_extreme(rows: Rows, plan: DimPlan) -> None:
    by_name = {batch.name: history(batch.inputs) for batch in verification_batches(rows, plan)}
    assert by_name["full_history"] == [96]
    assert by_name["empty_row"] == [0]
    assert by_name["all_histories_empty"] == [0, 0, 0]
    assert by_name["empty_among_others"][0] == 0 < min(by_name["empty_among_others"][1:])


def test_verifies_each_of_several_sequences_alone(tower_features: TowerFeatures, fixtures: Path) -> None:
    features = tower_features["dlrm_hstu", "model"]
    rows = read_rows(str(fixtures / "data" / "ref_b7.parquet"), features)
    plan = plan_dims(features, max_batch_size=16)
    sizes = {batch.name: agreed_sizes(batch.inputs, plan) for batch in verification_batches(rows, plan)}
    assert sizes["empty:uih_seq"]["seq_uih_seq"] == 0 < sizes["empty:uih_seq"]["seq_cand_seq"]
    assert sizes["empty:cand_seq"]["seq_cand_seq"] == 0 < sizes["empty:cand_seq"]["seq_uih_seq"]
    assert sizes["one_element:cand_seq"]["seq_cand_seq"] == 1 < sizes["one_element:cand_seq"]["seq_uih_seq"]


def test_verifies_rows_without_and_with_several_values(rows: Rows, plan: DimPlan) -> None:
    by_name = {batch.name: batch.inputs["user_id.lengths"] for batch in verification_batches(rows, plan)}
    assert by_name["no_values"].tolist() == [0, 0, 0]
    assert {0, 1, 2, 3, 4, 12, 17} <= set(by_name["low_counts"].tolist())


def test_rows_longer_than_declared_are_cut_where_the_bound_would_break(
    user_features: tuple[Feature, ...], fixtures: Path
) -> None:
    rows = read_rows(str(fixtures / "data" / "ref_b32.parquet"), user_features)
    long = rows.resize(rows.sequences, rows.columns["uih_seq__video_id"].per_row + 200)
    plan = plan_dims(user_features, max_batch_size=8)
    by_name = {batch.name: batch for batch in verification_batches(long, plan)}
    assert history(by_name["batch_8"].inputs) == [96] * 8
    assert "cut" in by_name["batch_8"].note
    assert history(by_name["batch_1"].inputs)[0] > 200


def test_an_item_tower_is_verified_at_one_item(item_features: tuple[Feature, ...], fixtures: Path) -> None:
    plan = plan_dims(item_features, max_batch_size=512)
    rows = read_rows(str(fixtures / "data" / "items.parquet"), item_features)
    batches = list(verification_batches(rows, plan))
    sizes = [f"batch_{size}" for size in (1, 2, 3, 7, 32, 512)]
    assert [batch.name for batch in batches] == [*sizes, "empty_row", "low_counts"]
    assert trace_inputs(rows, plan).keys() == {"video_id.values", "video_id.lengths"}


def test_contradictions_of_each_kind_are_made(rows: Rows, plan: DimPlan) -> None:
    good = trace_inputs(rows, plan)
    batches = list(contradicting_batches(rows, plan))
    kinds: dict[str, Callable[[dict[str, Tensor]], bool]] = {
        "one_row_short": lambda bad: len({len(t) for n, t in bad.items() if n.endswith("lengths")}) > 1,
        "one_event_short": lambda bad: (
            len(bad["uih_seq__video_id.values"]) != len(bad["uih_seq__action_timestamp.values"])
        ),
        "lengths_differ": lambda bad: (
            bad["uih_seq__action_timestamp.lengths"].tolist() != bad["uih_seq__video_id.lengths"].tolist()
        ),
        "lengths_exceed_values": lambda bad: any(
            bad[f"{n}.lengths"].sum() > len(bad[f"{n}.values"]) for n in ("user_id", "uih_seq__video_id")
        ),
    }
    assert {batch.name.partition(":")[0] for batch in batches} == kinds.keys()
    for batch in batches:
        assert kinds[batch.name.partition(":")[0]](batch.inputs), batch.name
        assert any(not torch.equal(batch.inputs[name], good[name]) for name in good), batch.name


def test_a_bad_row_is_found_in_a_later_batch(item_features: tuple[Feature, ...], tmp_path: Path) -> None:
    pq.write_table(pa.table({"video_id": [*range(1999), 2000]}), tmp_path / "items.parquet")
    with pytest.raises(
        InvalidRows, match=r"items.parquet, column video_id, row 1999: 2000 is not in 0 to 1999"
    ):
        read_rows(str(tmp_path / "items.parquet"), item_features)


def test_reads_no_more_rows_than_asked_for(item_features: tuple[Feature, ...], fixtures: Path) -> None:
    rows = read_rows(str(fixtures / "data" / "items.parquet"), item_features, limit=1500)
    assert len(rows) == 1500
    assert rows.row(3).columns["video_id"].values.tolist() == [3]


def test_named_batches_are_named_apart(rows: Rows, plan: DimPlan) -> None:
    batches: list[NamedBatch] = [*verification_batches(rows, plan), *contradicting_batches(rows, plan)]
    assert len({batch.name for batch in batches}) == len(batches)


_SHOPPING = Sequence(name="buys", length=9, delim="|")
_TAGS = Feature(
    name="tags",
    bare_name="tags",
    kind=FeatureKind.ID,
    sequence=_SHOPPING,
    value_dim=0,
    table=TableConfig(name="tags_emb", rows=99, dim=2),
)
_WEIGHTED = Feature(
    name="words",
    bare_name="words",
    kind=FeatureKind.ID,
    value_dim=0,
    weighted=True,
    table=TableConfig(name="words_emb", rows=99, dim=2),
)


@pytest.fixture
def shopping(tmp_path: Path) -> Rows:
    """Events of several values each, beside weighted ids."""
    columns = {"tags": [[[1, 2], []], [[3]], []], "words": ["1:0.5", "2:1", ""]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    return read_rows(str(tmp_path / "rows.parquet"), (_TAGS, _WEIGHTED))


def test_events_of_several_values_are_traced_at_sizes_of_their_own(shopping: Rows) -> None:
    plan = plan_dims(shopping.features, max_batch_size=48)
    sizes = agreed_sizes(trace_inputs(shopping, plan), plan)
    assert set(sizes) == {"batch", "seq_buys", "values_tags", "values_words"}
    assert len(set(sizes.values())) == 4


def test_verifies_events_without_and_with_several_values(shopping: Rows) -> None:
    plan = plan_dims(shopping.features, max_batch_size=48)
    cases = {case.name: case.inputs for case in verification_batches(shopping, plan)}
    assert cases["no_values"]["tags.lengths"].tolist() == [1, 2, 3]
    assert cases["no_values"]["tags.key_lengths"].tolist() == [0] * 6
    assert {0, 1, 2, 3, 12, 17} <= set(cases["low_counts"]["tags.key_lengths"].tolist())
    assert 4097 in cases["high_counts"]["tags.key_lengths"]


def test_verifies_weights_that_no_row_needs_to_have(shopping: Rows) -> None:
    plan = plan_dims(shopping.features, max_batch_size=48)
    cases = {case.name: case.inputs for case in verification_batches(shopping, plan)}
    assert {0.5, -1.25, 0.0} <= set(cases["low_counts"]["words.weights"].tolist())


def test_rows_beyond_real_ones_are_known_where_nothing_is_declared(shopping: Rows) -> None:
    plan = plan_dims(shopping.features, max_batch_size=48)
    cases = {case.name: case for case in verification_batches(shopping, plan)}
    beyond = {name for name, case in cases.items() if case.beyond_rows}
    assert {"low_counts", "middle_counts", "high_counts", "full_history", "full_batch"} <= beyond
    assert not {"batch_1", "batch_48", "empty_row", "held_counts"} & beyond
    held = cases["held_counts"].inputs
    assert int(held["words.lengths"].max()) == 1 and int(held["tags.key_lengths"].max()) == 2
    assert {0, 98} <= set(held["words.values"].tolist()) and -1.25 in held["words.weights"]


def test_values_that_do_not_add_up_per_event_are_a_contradiction(shopping: Rows) -> None:
    plan = plan_dims(shopping.features, max_batch_size=48)
    cases = {case.name: case.inputs for case in contradicting_batches(shopping, plan)}
    wrong = cases["key_lengths_exceed_values:tags"]
    assert int(wrong["tags.key_lengths"].sum()) == len(wrong["tags.values"]) + 1

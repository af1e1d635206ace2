"""The dim plan: which inputs a tower takes, in which order, and which sizes vary together."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import Feature, FeatureGroup, FeatureKind, GroupKind, Sequence, TableConfig
from exporter.dims.plan import DimPlan, plan_dims, plan_group_tensors
from exporter.spec import TowerName
from exporter.towers.view import tower_configs

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"

_TABLE = TableConfig(name="t", rows=9, dim=4)


def _feature(
    name: str,
    *,
    parent: str | None = None,
    table: TableConfig | None = _TABLE,
    value_dim: int = 1,
    weighted: bool = False,
) -> Feature:
    return Feature(
        name=name,
        bare_name=name,
        kind=FeatureKind.ID if table else FeatureKind.RAW,
        sequence=Sequence(name=parent, length=16, delim="|") if parent else None,
        table=table,
        value_dim=value_dim,
        weighted=weighted,
    )


def _group_tensors(kind: GroupKind, *groups: tuple[str, list[Feature]]) -> DimPlan:
    pipeline = parse_pipeline_config((FIXTURES / "hstu_match" / "pipeline.config").read_text())
    features = {feature.name: feature for _, members in groups for feature in members}
    named = tuple(
        FeatureGroup(name=name, kind=kind, features=tuple(f.name for f in members))
        for name, members in groups
    )
    pipeline = replace(pipeline, features=tuple(features.values()), groups=named)
    return plan_group_tensors(pipeline, max_batch_size=8)


@pytest.mark.parametrize("model", ["hstu_match", "hstu_match_desc"])
@pytest.mark.parametrize("name", [TowerName.USER, TowerName.ITEM])
def test_inputs_are_those_that_training_recorded_sorted_by_name(model: str, name: TowerName) -> None:
    pipeline = parse_pipeline_config((FIXTURES / model / "pipeline.config").read_text())
    [tower] = tower_configs(pipeline, (name,))
    plan = plan_dims(tower.pipeline.features, max_batch_size=64)
    planned = [(tensor.name, f"torch.{tensor.dtype}", len(tensor.shape)) for tensor in plan.inputs]
    batches = json.loads((FIXTURES / model / "outputs" / "index.json").read_text())["batches"]
    recorded = [batch["inputs"] for batch in batches if batch["part"] == f"{name}_tower"]
    assert recorded
    for inputs in recorded:
        assert sorted((tensor, dtype, len(shape)) for tensor, (shape, dtype) in inputs.items()) == planned


def test_features_of_one_sequence_share_a_dim() -> None:
    plan = plan_dims(
        [_feature("a", parent="clicks"), _feature("b", parent="clicks", table=None)], max_batch_size=8
    )
    assert [tensor.name for tensor in plan.inputs_of("seq_clicks")] == ["a.values", "b.values"]
    assert plan.dim("seq_clicks").high == 8 * 16


def test_features_of_two_sequences_do_not_share_a_dim() -> None:
    plan = plan_dims([_feature("a", parent="clicks"), _feature("b", parent="buys")], max_batch_size=8)
    assert [tensor.name for tensor in plan.inputs_of("seq_clicks")] == ["a.values"]


def test_every_lengths_shares_the_batch() -> None:
    plan = plan_dims([_feature("a", parent="clicks"), _feature("b", value_dim=0)], max_batch_size=8)
    assert [tensor.name for tensor in plan.inputs_of("batch")] == ["a.lengths", "b.lengths"]
    assert (plan.dim("batch").low, plan.dim("batch").high) == (1, 8)


def test_a_multi_valued_feature_has_a_dim_of_its_own() -> None:
    plan = plan_dims([_feature("a", value_dim=0), _feature("b", value_dim=3)], max_batch_size=8)
    assert plan.dim("values_a").high is None
    assert plan.dim("values_b").high == 24


def test_one_value_per_row_is_as_long_as_the_batch() -> None:
    plan = plan_dims([_feature("a"), _feature("b", table=None, value_dim=3)], max_batch_size=8)
    assert {tensor.name: tensor.shape for tensor in plan.inputs} == {
        "b.values": ("batch", 3),
        "a.values": ("batch",),
        "a.lengths": ("batch",),
    }


def test_a_sequence_that_declares_no_length_is_not_bounded() -> None:
    feature = Feature(
        name="a",
        bare_name="a",
        kind=FeatureKind.ID,
        sequence=Sequence(name="a", length=0, delim=";"),
        table=_TABLE,
    )
    assert plan_dims([feature], max_batch_size=8).dim("seq_a").high is None


def test_a_dims_reason_says_who_shares_it() -> None:
    plan = plan_dims([_feature("a", parent="clicks"), _feature("b", parent="clicks")], max_batch_size=8)
    assert plan.dim("seq_clicks").reason == "elements of all rows, shared by 2 inputs of sequence clicks"


def test_a_dim_of_one_input_says_so() -> None:
    plan = plan_dims([_feature("a", value_dim=0)], max_batch_size=8)
    assert plan.dim("values_a").reason == (
        "values of all rows of multi-valued feature a, shared by no other input"
    )


def test_weights_are_as_many_as_values() -> None:
    single, several = _feature("a", parent="clicks", weighted=True), _feature("b", value_dim=0, weighted=True)
    plan = plan_dims([single, several], max_batch_size=8)
    assert [tensor.name for tensor in plan.inputs_of("seq_clicks")] == ["a.values", "a.weights"]
    assert [tensor.name for tensor in plan.inputs_of("values_b")] == ["b.values", "b.weights"]


def test_key_lengths_share_the_elements_of_the_sequence_and_values_do_not() -> None:
    several = _feature("tags", parent="clicks", value_dim=3)
    plan = plan_dims([_feature("a", parent="clicks"), several], max_batch_size=8)
    assert [tensor.name for tensor in plan.inputs_of("seq_clicks")] == ["a.values", "tags.key_lengths"]
    assert [tensor.name for tensor in plan.inputs_of("values_tags")] == ["tags.values"]
    assert plan.dim("values_tags").high == 3 * 16 * 8


class TestGroupTensors:
    def test_a_deep_group_is_one_row_per_row(self) -> None:
        members = [_feature("a"), _feature("b", table=None, value_dim=3), _feature("c", parent="clicks")]
        [deep] = _group_tensors(GroupKind.DEEP, ("deep", members)).inputs
        assert (deep.name, deep.shape) == ("deep__ebc", ("batch", 4 + 3 + 4))

    def test_jagged_groups_of_one_parent_share_its_total_length(self) -> None:
        uih = [_feature("a", parent="clicks"), _feature("b", parent="clicks")]
        time = [_feature("t", parent="clicks", table=None)]
        plan = _group_tensors(GroupKind.JAGGED_SEQUENCE, ("uih", uih), ("uih_timestamp", time))
        assert {tensor.name: tensor.shape for tensor in plan.inputs} == {
            "uih__sequence": ("seq_clicks", 8),
            "uih__sequence_length": ("batch",),
            "uih_timestamp__sequence": ("seq_clicks", 1),
            "uih_timestamp__sequence_length": ("batch",),
        }
        assert plan.dim("seq_clicks").high == 8 * 16

    def test_padded_groups_of_one_parent_share_its_longest_length(self) -> None:
        one = [_feature("item"), _feature("a", parent="clicks")]
        plan = _group_tensors(
            GroupKind.SEQUENCE, ("one", one), ("other", one), ("buys", [_feature("x", parent="buys")])
        )
        assert {tensor.name: tensor.shape for tensor in plan.inputs if "length" not in tensor.name} == {
            "buys__sequence": ("batch", "longest_buys", 4),
            "one__query": ("batch", 4),
            "one__sequence": ("batch", "longest_clicks", 4),
            "other__query": ("batch", 4),
            "other__sequence": ("batch", "longest_clicks", 4),
        }
        assert plan.dim("longest_clicks").high == 8 * 16  # all events of a call may be those of one row
        assert plan.dim("longest_clicks").reason.startswith("elements of the longest row, shared by 2 inputs")

    def test_a_group_of_queries_has_no_sequence(self) -> None:
        plan = _group_tensors(GroupKind.SEQUENCE, ("contextual", [_feature("a"), _feature("b")]))
        assert [(tensor.name, tensor.shape) for tensor in plan.inputs] == [
            ("contextual__query", ("batch", 8))
        ]

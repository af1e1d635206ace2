"""The dim plan: which inputs a tower takes, in which order, and which sizes vary together."""

import json
from pathlib import Path

import pytest

from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import Feature, FeatureKind, Sequence, Table
from exporter.dims.plan import plan_dims
from exporter.spec import TowerName
from exporter.towers.view import tower_configs

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"

_TABLE = Table(name="t", rows=9, dim=4)


def _feature(
    name: str, *, parent: str | None = None, table: Table | None = _TABLE, value_dim: int = 1
) -> Feature:
    return Feature(
        name=name,
        bare_name=name,
        kind=FeatureKind.ID if table else FeatureKind.RAW,
        expression=f"user:{name}",
        sequence=Sequence(name=parent, length=16, delim="|") if parent else None,
        table=table,
        value_dim=value_dim,
    )


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
        expression="",
        sequence=Sequence(name="a", length=0, delim=";"),
        table=_TABLE,
    )
    assert plan_dims([feature], max_batch_size=8).dim("seq_a").high is None


def test_a_dims_reason_says_who_shares_it() -> None:
    plan = plan_dims([_feature("a", parent="clicks"), _feature("b", parent="clicks")], max_batch_size=8)
    assert plan.dim("seq_clicks").reason == "elements of all rows, shared by 2 inputs of sequence clicks"

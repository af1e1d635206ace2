"""The whole of a match model, and towers without perceptrons or projection."""

from dataclasses import replace

import pytest
import torch

from exporter.config.blocks.match_towers import Similarity
from exporter.config.families.match.dssm import DssmConfig
from exporter.config.schema import TowerConfig
from exporter.models.registry import build_model
from exporter.towers.tower import Tower
from tests.exporter.models.recorded import (
    Batch,
    load_recorded_weights,
    pipeline_of,
    read_batch,
    recorded_state,
    recorded_tower,
    untrained,
)


def changed(tower: Tower, **fields: object) -> TowerConfig:
    """The tower's config with other fields in the model's."""
    pipeline = tower.config.pipeline
    assert isinstance(pipeline.model, DssmConfig)
    model = replace(pipeline.model, **fields)  # type: ignore[arg-type]  # tests name fields of DssmConfig
    return replace(tower.config, pipeline=replace(pipeline, model=model))


@pytest.fixture
def inputs() -> Batch:
    return read_batch("dat", "user_tower__b7", "in")


@pytest.mark.parametrize("model", ["dssm", "dssm_inner", "dat", "mind"])
def test_a_trained_model_has_exactly_the_checkpoints_names(model: str) -> None:
    recorded = {name for part in ("user", "item") for name in recorded_state(model, part)}
    assert {f"model.{name}" for name in build_model(pipeline_of(model)).state_dict()} == recorded


@pytest.mark.parametrize("model", ["dat", "mind"])
def test_the_whole_model_computes_what_its_towers_compute(model: str) -> None:
    whole = build_model(pipeline_of(model)).eval()
    load_recorded_weights(whole, model)
    user, item = ((model, batch) for batch in ("user_tower__b7", "item_tower__items_b7"))
    outputs = whole(read_batch(*user, "in") | read_batch(*item, "in"))
    for name, expected in (read_batch(*user, "out") | read_batch(*item, "out")).items():
        torch.testing.assert_close(outputs[name], expected, rtol=1e-5, atol=1e-5)


def test_without_perceptrons_the_groups_are_projected_side_by_side(inputs: Batch) -> None:
    tower = recorded_tower("dat", "user")
    model = tower.config.pipeline.model
    assert isinstance(model, DssmConfig)
    bare = untrained(
        changed(tower, user=replace(model.user, mlp=None), output_dim=0, similarity=Similarity.EUCLID)
    )
    groups = bare.served.lookup(inputs)
    expected = torch.cat([groups["user"], groups["user_augment"]], dim=1)
    assert torch.equal(bare.module(inputs)["user_tower_emb"], expected)


@pytest.mark.parametrize("similarity", [Similarity.INNER_PRODUCT, Similarity.EUCLID])
def test_only_the_cosine_makes_vectors_of_unit_length(inputs: Batch, similarity: Similarity) -> None:
    tower = recorded_tower("dat", "user")
    other = untrained(changed(tower, similarity=similarity))
    other.module.load_state_dict(tower.module.state_dict())
    vectors = other.module(inputs)["user_tower_emb"]
    assert not torch.allclose(vectors.norm(dim=1), torch.ones(7))
    torch.testing.assert_close(
        torch.nn.functional.normalize(vectors), read_batch("dat", "user_tower__b7", "out")["user_tower_emb"]
    )


def test_variational_dropout_scales_each_feature_of_a_group(inputs: Batch) -> None:
    config = recorded_tower("dat", "user").config
    scaled = untrained(replace(config, pipeline=replace(config.pipeline, variational_dropout=True)))
    never_kept = scaled.module.get_parameter("user_tower.group_variational_dropouts.user_augment.feature_p")
    before = scaled.module(inputs)["user_tower_emb"]
    with torch.no_grad():
        never_kept.fill_(1e9)
    other = inputs | {"user_level.values": inputs["user_level.values"].flip(0)}
    assert not torch.equal(scaled.module(inputs)["user_tower_emb"], before)
    assert torch.equal(scaled.module(inputs)["user_tower_emb"], scaled.module(other)["user_tower_emb"])

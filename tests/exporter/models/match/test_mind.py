"""MIND's user tower: users without a history, and layers that TorchEasyRec names in its own way."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.match.mind import MindConfig, RoutingStart
from exporter.config.schema import TowerConfig
from exporter.dims.plan import plan_dims
from exporter.models.registry import build_tower
from tests.exporter.models.recorded import Batch, read_batch, recorded_tower, untrained

USER = "user_tower_emb"


def of_rows(inputs: Batch, rows: list[int]) -> Batch:
    """The same tensors of some of the rows only."""
    taken: Batch = {}
    for name, value in inputs.items():
        feature, _, part = name.rpartition(".")
        lengths = inputs.get(f"{feature}.lengths")
        if lengths is None or part == "lengths":
            taken[name] = value[rows]
            continue
        keys = inputs.get(f"{feature}.key_lengths")
        elements = torch.isin(torch.arange(len(lengths)).repeat_interleave(lengths), torch.tensor(rows))
        if keys is not None and part == "values":
            elements = elements.repeat_interleave(keys)
        taken[name] = value[elements]
    return taken


def changed(**fields: object) -> TowerConfig:
    """The recorded user tower with other fields in its part of the config."""
    config = recorded_tower("mind", "user").config
    model = config.pipeline.model
    assert isinstance(model, MindConfig)
    user = replace(model.user, **fields)  # type: ignore[arg-type]  # tests name fields of MindUserConfig
    return replace(config, pipeline=replace(config.pipeline, model=replace(model, user=user)))


def names(config: TowerConfig) -> set[str]:
    with torch.device("meta"):
        return {name.removeprefix("user_tower.") for name in untrained(config).module.state_dict()}


@pytest.mark.parametrize("batch", ["b7", "b3_empty"])
def test_a_user_alone_has_the_vectors_that_he_has_among_others(batch: str) -> None:
    tower, inputs = recorded_tower("mind", "user").module, read_batch("mind", f"user_tower__{batch}", "in")
    recorded = read_batch("mind", f"user_tower__{batch}", "out")[USER]
    for row in range(len(recorded)):
        alone = tower(of_rows(inputs, [row]))[USER]
        torch.testing.assert_close(alone, recorded[[row]], rtol=0, atol=1e-6)


def test_nothing_but_users_without_a_history_is_computed() -> None:
    inputs = read_batch("mind", "user_tower__b3_empty", "in")
    cold = inputs["click_seq__item_id.lengths"].eq(0).nonzero().flatten().tolist()
    vectors = recorded_tower("mind", "user").module(of_rows(inputs, cold))[USER]
    assert vectors.shape == (2, 4, 16)
    torch.testing.assert_close(vectors[:, 0].norm(dim=1), torch.ones(2))
    assert (vectors[:, 1:] == 0).all()


def test_an_mlp_of_one_layer_is_a_projection() -> None:
    one = MlpConfig(hidden_units=(16,), use_bn=True, bias=False)
    state = names(changed(user_mlp=replace(one, bias=True), history_mlp=one))
    assert {"user_mlp.weight", "user_mlp.bias", "_hist_seq_mlp.weight"} <= state
    assert not {"_hist_seq_mlp.bias", "user_mlp_out.weight"} & state


def test_without_a_history_mlp_events_are_routed_as_they_are() -> None:
    state = names(changed(history_mlp=None))
    assert not {name for name in state if name.startswith("_hist_seq")}
    [capsules] = (m for m in built(changed(history_mlp=None)).modules() if hasattr(m, "bilinear_matrix"))
    assert capsules.bilinear_matrix.shape == (33, 12)


def test_a_concat_mlp_without_layers_leaves_user_and_interest_side_by_side() -> None:
    tower = built(changed(concat_mlp=None))
    assert tower.get_parameter("user_tower.output.weight").shape == (16, 16 + 12)
    assert tower.eval()(read_batch("mind", "user_tower__b2", "in"))[USER].shape == (2, 4, 16)


def built(config: TowerConfig) -> nn.Module:
    plan = plan_dims(config.pipeline.features, max_batch_size=64)
    return build_tower(config, plan).module


@pytest.mark.parametrize(("start", "remarks"), [(RoutingStart.ZEROS, 0), (RoutingStart.NORMAL, 1)])
def test_a_manifest_is_told_of_a_drawing(start: RoutingStart, remarks: int) -> None:
    model = recorded_tower("mind", "user").config.pipeline.model
    assert isinstance(model, MindConfig)
    capsules = replace(model.user.capsules, routing_start=start)
    assert len(untrained(changed(capsules=capsules)).served.remarks()) == remarks
    assert recorded_tower("mind", "item").served.remarks() == ()

"""Every output that TorchEasyRec recorded for dssm, dat and mind."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from exporter.config.schema import TowerConfig
from exporter.spec import IdWeights
from exporter.towers.tower import Tower
from tests.exporter.models.recorded import (
    FIXTURES,
    load_recorded_weights,
    read_batch,
    recorded_state,
    recorded_tower,
    require_close,
    untrained,
    usual_scales,
)

MODELS = ("dssm", "dssm_inner", "dat", "mind")
RECORDED = [
    (model, path.name.removesuffix(".out.safetensors"))
    for model in MODELS
    for path in sorted((FIXTURES / model / "outputs").glob("*.out.safetensors"))
]


def ignoring_weights(config: TowerConfig) -> TowerConfig:
    """The recordings are of TorchEasyRec's export, which ignores the weights of ids."""
    return replace(config, options=replace(config.options, id_weights=IdWeights.IGNORE))


@cache
def tower_as_recorded(model: str, name: str) -> Tower:
    tower = untrained(ignoring_weights(recorded_tower(model, name).config))
    load_recorded_weights(tower.module, model)
    return tower


def test_all_recorded_batches_are_found() -> None:
    assert len(RECORDED) == 42


@pytest.mark.parametrize(("model", "batch"), RECORDED)
def test_outputs_are_the_recorded_ones(model: str, batch: str) -> None:
    part = batch.split("__")[0]
    tower = tower_as_recorded(model, part.removesuffix("_tower"))
    with torch.no_grad():
        outputs = tower.module(read_batch(model, batch, "in"))
    require_close(outputs, read_batch(model, batch, "out"), usual_scales(model, part))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["user", "item"])
def test_state_dict_has_exactly_the_recorded_names_shapes_and_dtypes(model: str, name: str) -> None:
    state = recorded_tower(model, name).module.state_dict()
    assert {f"model.{k}": [list(v.shape), str(v.dtype)] for k, v in state.items()} == recorded_state(
        model, name
    )


@pytest.mark.parametrize("model", ["dssm", "dssm_inner"])
def test_weights_of_ids_count_unless_they_are_ignored(model: str) -> None:
    inputs = read_batch(model, "user_tower__b7", "in")
    applied = recorded_tower(model, "user").module(inputs)["user_tower_emb"]
    ignored = tower_as_recorded(model, "user").module(inputs)["user_tower_emb"]
    ones = {key: torch.ones_like(value) for key, value in inputs.items() if key.endswith(".weights")}
    assert not torch.allclose(applied, ignored, rtol=0, atol=1e-3)
    torch.testing.assert_close(recorded_tower(model, "user").module(inputs | ones)["user_tower_emb"], ignored)

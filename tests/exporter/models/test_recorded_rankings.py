"""Every output that TorchEasyRec recorded for the ranking models over whole groups."""

from functools import cache

import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

from exporter.config.build_options import BuildOptions
from exporter.config.schema import TowerConfig
from exporter.spec import IdWeights, TowerName
from exporter.towers.tower import Tower
from exporter.towers.view import training_tower
from tests.exporter.models.recorded import (
    FIXTURES,
    load_recorded_weights,
    pipeline_of,
    read_batch,
    recorded_state,
    require_close,
    untrained,
    usual_scales,
)

MODELS = ("multi_tower_din", "multi_tower_din_w", "dbmtl")
RECORDED = [
    (model, path.name.removesuffix(".out.safetensors"))
    for model in MODELS
    for path in sorted((FIXTURES / model / "outputs").glob("*.out.safetensors"))
]


@cache
def tower_of(model: str, weights: IdWeights) -> Tower:
    options = BuildOptions(id_weights=weights)
    config: TowerConfig = training_tower(pipeline_of(model), TowerName.MODEL, options)
    tower = untrained(config)
    load_recorded_weights(tower.module, model)
    return tower


def outputs_of(model: str, batch: str, weights: IdWeights) -> dict[str, Tensor]:
    with torch.no_grad():
        outputs: dict[str, Tensor] = tower_of(model, weights).module(read_batch(model, batch, "in"))
    return outputs


def test_all_recorded_batches_are_found() -> None:
    assert len(RECORDED) == 15


@pytest.mark.parametrize(("model", "batch"), RECORDED)
def test_outputs_are_the_recorded_ones(model: str, batch: str) -> None:
    outputs = outputs_of(model, batch, IdWeights.IGNORE)  # as TorchEasyRec's export does
    require_close(outputs, read_batch(model, batch, "out"), usual_scales(model, "model"))


def test_weighted_ids_count_as_they_did_in_training() -> None:
    outputs = outputs_of("multi_tower_din_w", "model__b7", IdWeights.APPLY)
    trained = pq.read_table(FIXTURES / "multi_tower_din_w" / "as_trained" / "b7.parquet")
    expected = {name: torch.tensor(trained[name].to_pylist()) for name in outputs}
    require_close(outputs, expected, {})


@pytest.mark.parametrize("model", MODELS)
def test_state_dict_has_exactly_the_recorded_names_shapes_and_dtypes(model: str) -> None:
    state = tower_of(model, IdWeights.APPLY).module.state_dict()
    found = {f"model.{name}": [list(weight.shape), str(weight.dtype)] for name, weight in state.items()}
    assert found == recorded_state(model, "model")

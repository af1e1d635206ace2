"""Every output and every weight that TorchEasyRec recorded, of every folder of the fixtures."""

import pyarrow.parquet as pq
import pytest
import torch

from tests.exporter.models.recorded import (
    FIXTURES,
    MODELS,
    read_batch,
    recorded_parts,
    recorded_state,
    recorded_tower,
    require_close,
    tolerance_of,
    tower_as_recorded,
    tower_of,
    usual_scales,
)

TOWERS = [(model, part) for model in MODELS for part in recorded_parts(model)]
RECORDED = [
    (model, path.name.removesuffix(".out.safetensors"))
    for model in MODELS
    for path in sorted((FIXTURES / model / "outputs").glob("*.out.safetensors"))
]


def test_every_folder_is_found() -> None:
    assert len(MODELS) == 34


@pytest.mark.parametrize(("model", "batch"), RECORDED)
def test_outputs_are_the_recorded_ones(model: str, batch: str) -> None:
    part = batch.split("__")[0]
    with torch.no_grad():
        outputs = tower_as_recorded(model, part).module(read_batch(model, batch, "in"))
    expected = read_batch(model, batch, "out")
    require_close(outputs, expected, usual_scales(model, part), tolerance_of(model))


@pytest.mark.parametrize(("model", "part"), TOWERS)
def test_state_dict_has_exactly_the_recorded_names_shapes_and_dtypes(model: str, part: str) -> None:
    state = recorded_tower(model, tower_of(part)).module.state_dict()
    found = {f"model.{name}": [list(weight.shape), str(weight.dtype)] for name, weight in state.items()}
    assert found == recorded_state(model, tower_of(part))


@pytest.mark.parametrize("model", ["dssm", "dssm_inner"])
def test_weights_of_ids_count_unless_they_are_ignored(model: str) -> None:
    inputs = read_batch(model, "user_tower__b7", "in")
    applied = recorded_tower(model, "user").module(inputs)["user_tower_emb"]
    ignored = tower_as_recorded(model, "user_tower").module(inputs)["user_tower_emb"]
    ones = {key: torch.ones_like(value) for key, value in inputs.items() if key.endswith(".weights")}
    assert not torch.allclose(applied, ignored, rtol=0, atol=1e-3)
    torch.testing.assert_close(recorded_tower(model, "user").module(inputs | ones)["user_tower_emb"], ignored)


def test_weighted_ids_count_as_they_did_in_training() -> None:
    inputs = read_batch("multi_tower_din_w", "model__b7", "in")
    with torch.no_grad():
        outputs = recorded_tower("multi_tower_din_w", "model").module(inputs)
    trained = pq.read_table(FIXTURES / "multi_tower_din_w" / "as_trained" / "b7.parquet")
    expected = {name: torch.tensor(trained[name].to_pylist()) for name in outputs}
    require_close(outputs, expected, {})

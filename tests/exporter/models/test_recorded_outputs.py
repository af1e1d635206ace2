"""Every output that TorchEasyRec recorded for the fixture models."""

import pytest
import torch

from tests.exporter.models.recorded import (
    FIXTURES,
    read_batch,
    recorded_state,
    recorded_tower,
    require_close,
    usual_scales,
)

MODELS = {
    "hstu_match": ("user", "item"),
    "hstu_match_desc": ("user", "item"),
    "dlrm_hstu": ("model",),
    "dlrm_hstu_ema": ("model",),
    "dlrm_hstu_sharded": ("model",),
    "dlrm_hstu_trunc": ("model",),
}
RECORDED = [
    (model, path.name.removesuffix(".out.safetensors"))
    for model in MODELS
    for path in sorted((FIXTURES / model / "outputs").glob("*.out.safetensors"))
]


def test_all_recorded_batches_are_found() -> None:
    assert len(RECORDED) == 50


@pytest.mark.parametrize(("model", "batch"), RECORDED)
def test_outputs_are_the_recorded_ones(model: str, batch: str) -> None:
    part = batch.split("__")[0]
    tower = recorded_tower(model, part.removesuffix("_tower"))
    with torch.no_grad():
        outputs = tower.module(read_batch(model, batch, "in"))
    require_close(outputs, read_batch(model, batch, "out"), usual_scales(model, part))


@pytest.mark.parametrize(("model", "name"), [(model, name) for model in MODELS for name in MODELS[model]])
def test_state_dict_has_exactly_the_recorded_names_shapes_and_dtypes(model: str, name: str) -> None:
    state = recorded_tower(model, name).module.state_dict()
    assert {f"model.{k}": [list(v.shape), str(v.dtype)] for k, v in state.items()} == recorded_state(
        model, name
    )

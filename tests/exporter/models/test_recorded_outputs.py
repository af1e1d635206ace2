"""Every output that TorchEasyRec recorded for the fixture models."""

import json
from pathlib import Path

import pytest
import torch

FIXTURES = Path(__file__).parents[2] / "fixtures" / "torcheasyrec"
TOLERANCE = 1e-5  # of the output's scale: sums may be taken in another order

RECORDED = [
    (model, path.name.removesuffix(".out.safetensors"))
    for model in ("hstu_match", "hstu_match_desc")
    for path in sorted((FIXTURES / model / "outputs").glob("*.out.safetensors"))
]


def test_all_recorded_batches_are_found():
    assert len(RECORDED) == 22


@pytest.mark.parametrize(("model", "batch"), RECORDED)
def test_outputs_are_the_recorded_ones(load_tower, read_batch, model, batch):
    tower = load_tower(model, batch.split("_tower")[0])
    with torch.no_grad():
        outputs = tower.module(read_batch(model, batch, "in"))
    recorded = read_batch(model, batch, "out")
    assert outputs.keys() == recorded.keys()
    for name, expected in recorded.items():
        torch.testing.assert_close(
            outputs[name], expected, rtol=0, atol=TOLERANCE * expected.abs().max().item()
        )


@pytest.mark.parametrize("model", ["hstu_match", "hstu_match_desc"])
@pytest.mark.parametrize("name", ["user", "item"])
def test_state_dict_has_exactly_the_recorded_names_shapes_and_dtypes(load_tower, model, name):
    recorded = json.loads((FIXTURES / model / "outputs" / f"{name}_tower.state_dict.json").read_text())
    state = load_tower(model, name).module.state_dict()
    assert {f"model.{k}": [list(v.shape), str(v.dtype)] for k, v in state.items()} == recorded

"""Every output that TorchEasyRec recorded for the fixture models."""

import pytest
import torch

from tests.exporter.models.recorded import FIXTURES, read_batch, recorded_state, recorded_tower

TOLERANCE = 1e-5  # of the output's scale: sums may be taken in another order

RECORDED = [
    (model, path.name.removesuffix(".out.safetensors"))
    for model in ("hstu_match", "hstu_match_desc")
    for path in sorted((FIXTURES / model / "outputs").glob("*.out.safetensors"))
]


def test_all_recorded_batches_are_found() -> None:
    assert len(RECORDED) == 22


@pytest.mark.parametrize(("model", "batch"), RECORDED)
def test_outputs_are_the_recorded_ones(model: str, batch: str) -> None:
    tower = recorded_tower(model, batch.split("_tower")[0])
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
def test_state_dict_has_exactly_the_recorded_names_shapes_and_dtypes(model: str, name: str) -> None:
    state = recorded_tower(model, name).module.state_dict()
    assert {f"model.{k}": [list(v.shape), str(v.dtype)] for k, v in state.items()} == recorded_state(
        model, name
    )

"""What each stage of the models with one vector per row gave TorchEasyRec, where ours has the same stage."""

import pytest
import torch
from torch import Tensor, nn

from exporter.models.ranking import RankingTower
from tests.exporter.models.recorded import observe, read_batch, tower_as_recorded

MODELS = ("dcn_v1", "dcn_v2", "mask_net", "rocket_launching", "mmoe", "ple", "pepnet", "dc2vr")
BATCHES = ("b1", "b2", "b3_empty", "b7")
# Modules that ours computes with, but does not call: a matrix that is multiplied twice, and an attention.
NOT_CALLED = (".base_rotate_layer", "._multihead_attn.0", "._multihead_attn.1")
ROTATION = ".parametrizations.weight.0"  # ours gives its output one level higher


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("model", MODELS)
def test_stages_agree(model: str, batch: str) -> None:
    tower = tower_as_recorded(model, "model")
    recorded = {
        name.removeprefix("model."): tensor
        for name, tensor in read_batch(model, f"model__{batch}", "mid").items()
        if not name.endswith(NOT_CALLED)
    }
    places = {name: _place(tower.module, name) for name in recorded}
    stages = {stage for stage, _ in places.values() if stage}
    seen = observe(tower, sorted(stages), read_batch(model, f"model__{batch}", "in"))
    groups = tower.served.lookup(read_batch(model, f"model__{batch}", "in"))
    assert isinstance(tower.module, RankingTower)
    with torch.no_grad():
        groups = tower.module.embedding_group.encode(groups)
    for name, expected in recorded.items():
        stage, part = places[name]
        actual = groups[part] if stage == "" else seen[stage]
        if stage and part:
            actual = actual[int(part)]
        _require_close(name, actual, expected)


def _place(module: nn.Module, name: str) -> tuple[str, str]:
    """Return the submodule that gives a recorded tensor, and which of its outputs that is, or the group."""
    if name.startswith("embedding_group["):
        return "", name.removeprefix("embedding_group[").removesuffix("]")
    if name.endswith("[hidden_layer_end]"):
        return name.removesuffix("[hidden_layer_end]"), ""
    if "[hidden_layer" in name:
        stage, _, layer = name.removesuffix("]").partition("[hidden_layer")
        return f"{stage}.mlp.{layer}", ""
    name = name.removesuffix(".0") if name.endswith(ROTATION) else name
    if name in dict(module.named_modules()):
        return name, ""
    stage, _, part = name.rpartition(".")
    return stage, part


def _require_close(name: str, actual: Tensor, expected: Tensor) -> None:
    if name.endswith("_length]"):
        assert torch.equal(actual.to(expected.dtype), expected), name
        return
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 * scale, msg=lambda m: f"{name}: {m}")


@pytest.mark.parametrize("model", MODELS)
def test_rows_without_any_value_give_finite_outputs(model: str) -> None:
    tower = tower_as_recorded(model, "model")
    inputs = {}
    for name, tensor in read_batch(model, "model__b2", "in").items():
        feature, _, part = name.rpartition(".")
        is_sparse = f"{feature}.lengths" in read_batch(model, "model__b2", "in")
        inputs[name] = torch.zeros_like(tensor) if part == "lengths" else tensor[:0] if is_sparse else tensor
    with torch.no_grad():
        outputs = tower.module(inputs)
    assert all(output.shape[0] == 2 and output.isfinite().all() for output in outputs.values())

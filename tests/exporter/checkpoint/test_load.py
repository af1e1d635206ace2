from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from exporter.checkpoint.errors import WeightsNotFinite
from exporter.checkpoint.load import load_weights
from exporter.checkpoint.read import Checkpoint, open_checkpoint
from exporter.errors import CheckpointMismatch


class Tower(nn.Module):
    """Two parameters, a persistent buffer and one that no checkpoint holds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.register_buffer("masks", torch.zeros(4, dtype=torch.int64))
        self.register_buffer("scratch", torch.ones(1, device="cpu"), persistent=False)


WEIGHTS = {
    "model.linear.weight": torch.arange(6, dtype=torch.float32).reshape(2, 3),
    "model.linear.bias": torch.ones(2),
    "model.masks": torch.arange(4),
    "model.other_tower.weight": torch.ones(1),
}


def checkpoint_of(folder: Path, **changes: Tensor | None) -> Checkpoint:
    """WEIGHTS in a file; a change replaces a tensor, None leaves it out."""
    weights = WEIGHTS | {f"model.{name.replace('__', '.')}": value for name, value in changes.items()}
    save_file({name: value for name, value in weights.items() if value is not None}, folder / "x.safetensors")
    return open_checkpoint(folder)


@pytest.fixture(params=["cpu", "meta"])
def tower(request: pytest.FixtureRequest) -> Tower:
    with torch.device(request.param):
        return Tower()


def test_every_parameter_and_persistent_buffer_is_filled(tower: Tower, tmp_path: Path) -> None:
    load_weights(tower, checkpoint_of(tmp_path))
    for name, tensor in tower.state_dict().items():
        assert torch.equal(tensor, WEIGHTS[f"model.{name}"])
    assert isinstance(tower.linear.weight, nn.Parameter)


def test_missing_tensors_are_all_named(tower: Tower, tmp_path: Path) -> None:
    with pytest.raises(CheckpointMismatch) as refusal:
        load_weights(tower, checkpoint_of(tmp_path, linear__bias=None, masks=None))
    assert refusal.value.missing == ["model.linear.bias", "model.masks"]
    assert "2 missing: model.linear.bias, model.masks" in refusal.value.message


@pytest.mark.parametrize(
    ("tensor", "found"),
    [(torch.ones(3), "float32 [3]"), (torch.ones(2, dtype=torch.float64), "float64 [2]")],
)
def test_another_shape_or_dtype_is_named(tensor: Tensor, found: str, tower: Tower, tmp_path: Path) -> None:
    with pytest.raises(CheckpointMismatch) as refusal:
        load_weights(tower, checkpoint_of(tmp_path, linear__bias=tensor))
    assert refusal.value.mismatched == [f"model.linear.bias: checkpoint ({found}), model (float32 [2])"]


def test_the_other_towers_tensors_are_expected_and_strangers_are_not(tower: Tower, tmp_path: Path) -> None:
    known = {*tower.state_dict(), "other_tower.weight"}
    load_weights(tower, checkpoint_of(tmp_path), known=known)
    with pytest.raises(CheckpointMismatch) as refusal:
        load_weights(tower, checkpoint_of(tmp_path, stranger=torch.ones(1)), known=known)
    assert refusal.value.unexpected == ["model.stranger"]


def test_a_refused_checkpoint_changes_nothing(tmp_path: Path) -> None:
    tower = Tower()
    before = tower.linear.weight.clone()
    with pytest.raises(CheckpointMismatch):
        load_weights(tower, checkpoint_of(tmp_path, masks=None))
    assert torch.equal(tower.linear.weight, before)


def test_the_prefix_may_be_part_of_the_models_names(tmp_path: Path) -> None:
    whole = nn.ModuleDict({"model": Tower()})
    load_weights(whole, checkpoint_of(tmp_path), prefix="")
    assert torch.equal(whole.state_dict()["model.masks"], torch.arange(4))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_weights_of_a_diverged_training_are_refused(bad: float, tower: Tower, tmp_path: Path) -> None:
    with pytest.raises(WeightsNotFinite, match=r"NaN or infinity: model\.linear\.bias"):
        load_weights(tower, checkpoint_of(tmp_path, linear__bias=torch.tensor([1.0, bad])))


def test_a_recorded_checkpoint_fills_a_tower_built_on_the_meta_device(fixtures: Path) -> None:
    with torch.device("meta"):
        tower = nn.ModuleDict({"item_tower": nn.ModuleDict({"mlp": nn.ModuleDict({"mlp": nn.ModuleList()})})})
        layer = nn.ModuleDict({"perceptron": nn.ModuleList([nn.Linear(16, 32)])})
        tower["item_tower"]["mlp"]["mlp"].append(layer)  # type: ignore[index]  # nested containers
    load_weights(tower, open_checkpoint(fixtures / "hstu_match" / "model.ckpt-11"))
    assert not any(parameter.is_meta for parameter in tower.parameters())

"""pepnet as it was not recorded: several domains, other activations, and parts left out."""

import pytest
import torch
from torch import Tensor

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.multi_task.pepnet import PpnetConfig
from exporter.models.ranking import RankingTower
from tests.exporter.models.rebuilt import rebuilt
from tests.exporter.models.recorded import read_batch


def outputs_of(tower: RankingTower) -> dict[str, Tensor]:
    with torch.no_grad():
        outputs: dict[str, Tensor] = tower(read_batch("pepnet", "model__b7", "in"))
    return outputs


def test_every_task_gives_an_output_for_every_domain() -> None:
    tower = rebuilt("pepnet", domains=3)
    outputs = outputs_of(tower)
    assert set(outputs) == {
        f"{kind}_{domain}" for kind in ("logits_ctr", "probs_ctr", "y_stay") for domain in range(3)
    }
    assert [name for name, _ in tower.get_submodule("_task_tower").named_children()] == list("012345")
    with torch.no_grad():  # of six towers, the fourth is that of the second task in the first domain
        tower.get_parameter("_task_tower.3.linear.bias").add_(1)
    after = outputs_of(tower)
    torch.testing.assert_close(after["y_stay_0"], outputs["y_stay_0"] + 1)
    assert torch.equal(after["y_stay_1"], outputs["y_stay_1"])
    assert torch.equal(after["logits_ctr_2"], outputs["logits_ctr_2"])


@pytest.mark.parametrize(
    ("activation", "names"),
    [
        ("nn.PReLU", {"weight"}),
        ("Dice", {"alpha", "bn.running_mean", "bn.running_var", "bn.num_batches_tracked"}),
    ],
)
def test_activations_may_have_weights(activation: str, names: set[str]) -> None:
    layers = MlpConfig(hidden_units=(5, 3), activation=activation)
    tower = rebuilt("pepnet", ppnet=PpnetConfig(gamma=2, layers=layers))
    state = tower.state_dict()
    for index in range(4):  # two tasks of two layers
        prefix = f"ppnet.activations.{index}."
        assert {name.removeprefix(prefix) for name in state if name.startswith(prefix)} == names
    assert all(output.isfinite().all() for output in outputs_of(tower).values())


def test_towers_read_the_features_where_the_groups_of_gates_are_missing() -> None:
    tower = rebuilt("pepnet", epnet=None, ppnet=None)
    groups = {"all": torch.randn(4, 33)}
    linear = tower.get_submodule("_task_tower.1.linear")
    with torch.no_grad():
        outputs = tower.predict(groups)
        torch.testing.assert_close(outputs["y_stay"], linear(groups["all"])[:, 0])
    assert not any(name.startswith(("epnet.", "ppnet.")) for name in tower.state_dict())

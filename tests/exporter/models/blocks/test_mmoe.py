"""Experts mixed by gates."""

import torch

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.mmoe import MmoeConfig
from exporter.models.blocks.mmoe import Mmoe

EXPERT = MlpConfig(hidden_units=(3,))


def test_each_task_mixes_the_experts_by_its_own_gate() -> None:
    mmoe = Mmoe(4, MmoeConfig(expert_mlp=EXPERT, num_expert=2), tasks=2)
    for name in ("weight", "bias"):  # the second task's gate: all of the last expert
        torch.nn.init.zeros_(mmoe.get_parameter(f"gate_finals.1.{name}"))
    with torch.no_grad():
        mmoe.get_parameter("gate_finals.1.bias")[1] = 100.0
    x = torch.randn(2, 4)
    _, second = mmoe(x)
    torch.testing.assert_close(second, mmoe.get_submodule("expert_mlps.1")(x))


def test_gates_may_have_perceptrons_of_their_own() -> None:
    config = MmoeConfig(expert_mlp=EXPERT, num_expert=2, gate_mlp=MlpConfig(hidden_units=(6, 5)))
    mmoe = Mmoe(4, config, tasks=3)
    assert mmoe.get_parameter("gate_finals.2.weight").shape == (2, 5)
    assert [task.shape for task in mmoe(torch.randn(2, 4))] == [(2, 3)] * 3

"""The fusion tower of dlrm_hstu: one linear layer for all tasks."""

import pytest
import torch

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import TaskConfig
from exporter.models.hstu.fusion_tower import FusionTower


@pytest.mark.parametrize("mlp", [None, MlpConfig(hidden_units=(5,))])
def test_each_task_gets_numbers_of_its_own(mlp: MlpConfig | None) -> None:
    tasks = tuple(TaskConfig(name=name, num_class=size, losses=()) for name, size in (("a", 1), ("b", 3)))
    tower = FusionTower(4, mlp, tasks)
    numbers = tower(torch.randn(2, 4), torch.randn(2, 4))
    assert {name: tuple(part.shape) for name, part in numbers.items()} == {"a": (2, 1), "b": (2, 3)}
    assert tower.linear.in_features == (5 if mlp else 4)

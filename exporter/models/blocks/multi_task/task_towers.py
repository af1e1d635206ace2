"""Towers of tasks: an MLP, if the task has one, and a linear layer to the task's numbers.

B rows, D width.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from exporter.config.blocks.task_towers import TaskTowerConfig
from exporter.models.blocks.mlp import Mlp
from exporter.models.blocks.tasks import task_outputs


class TaskTower(nn.Module):
    """One task's tower, to numbers (B, classes)."""

    def __init__(self, in_features: int, config: TaskTowerConfig) -> None:
        super().__init__()
        self.tower_mlp = None if config.mlp is None else Mlp(in_features, config.mlp)
        width = in_features if config.mlp is None else config.mlp.width
        self.linear = nn.Linear(width, config.task.num_class)

    def forward(self, x_BD: Tensor) -> Tensor:
        numbers: Tensor = self.linear(x_BD if self.tower_mlp is None else self.tower_mlp(x_BD))
        return numbers


class TaskTowers(nn.ModuleList):
    """Towers of all tasks, over inputs of one width, in the config's order."""

    def __init__(self, in_features: int, configs: Sequence[TaskTowerConfig]) -> None:
        super().__init__(TaskTower(in_features, config) for config in configs)
        self._tasks = tuple(config.task for config in configs)

    def forward(self, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return the outputs of every task by name, from an input for each."""
        numbers = {
            task.name: tower(x_BD) for task, tower, x_BD in zip(self._tasks, self, inputs, strict=True)
        }
        return task_outputs(self._tasks, numbers)

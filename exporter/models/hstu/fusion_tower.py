"""Task heads of dlrm_hstu: from the embeddings of user and item to the numbers of each task.

M candidates, D width, K numbers of all tasks together.
"""

from torch import Tensor, nn

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import TaskConfig
from exporter.models.blocks.mlp import Mlp


class FusionTower(nn.Module):
    """Product of user and item, an MLP if there is one, and one linear layer for all tasks."""

    def __init__(self, width: int, mlp: MlpConfig | None, tasks: tuple[TaskConfig, ...]) -> None:
        super().__init__()
        self._tasks = tasks
        self.tower_mlp = None if mlp is None else Mlp(width, mlp)
        self.linear = nn.Linear(mlp.hidden_units[-1] if mlp else width, sum(task.num_class for task in tasks))

    def forward(self, users_MD: Tensor, items_MD: Tensor) -> dict[str, Tensor]:
        """Return the numbers of each task, (M, num_class)."""
        fused = users_MD * items_MD
        if self.tower_mlp is not None:
            fused = self.tower_mlp(fused)
        numbers = self.linear(fused).split([task.num_class for task in self._tasks], dim=1)
        return {task.name: part for task, part in zip(self._tasks, numbers, strict=True)}

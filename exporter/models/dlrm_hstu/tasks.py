"""The tasks of a ranking model: from one embedding of user and item to the outputs of each task.

M candidates, D width, K numbers of all tasks together.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from exporter.config.hstu import Loss, TaskConfig
from exporter.config.mlp import MlpConfig
from exporter.models.mlp import Mlp


class FusionTower(nn.Module):
    """User times item, perceptrons if there are any, and one linear layer for all tasks."""

    def __init__(self, width: int, mlp: MlpConfig | None, tasks: tuple[TaskConfig, ...]) -> None:
        super().__init__()
        self._tasks = tasks
        self.tower_mlp = None if mlp is None else Mlp(width, mlp)
        self.linear = nn.Linear(mlp.hidden_units[-1] if mlp else width, sum(task.num_class for task in tasks))

    def forward(self, users_MD: Tensor, items_MD: Tensor) -> dict[str, Tensor]:
        """The numbers of each task, (M, num_class)."""
        fused = users_MD * items_MD
        if self.tower_mlp is not None:
            fused = self.tower_mlp(fused)
        numbers = self.linear(fused).split([task.num_class for task in self._tasks], dim=1)
        return {task.name: part for task, part in zip(self._tasks, numbers, strict=True)}


def task_outputs(tasks: tuple[TaskConfig, ...], numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every output of every task, by TorchEasyRec's names."""
    outputs: dict[str, Tensor] = {}
    for task in tasks:
        for loss in task.losses:
            outputs |= _outputs(task, loss, numbers[task.name])
    return outputs


def _outputs(task: TaskConfig, loss: Loss, numbers: Tensor) -> dict[str, Tensor]:
    match loss:
        case Loss.BINARY_CROSS_ENTROPY | Loss.BINARY_FOCAL:
            logits = _only(numbers)
            return {f"logits_{task.name}": logits, f"probs_{task.name}": torch.sigmoid(logits)}
        case Loss.SOFTMAX_CROSS_ENTROPY | Loss.JRC:
            probs = torch.softmax(numbers, dim=1)
            outputs = {f"logits_{task.name}": numbers, f"probs_{task.name}": probs}
            return outputs | ({f"probs1_{task.name}": _only(probs[:, 1:])} if task.num_class == 2 else {})
        case Loss.L2:
            return {f"y_{task.name}": _only(numbers)}


def _only(numbers_M1: Tensor) -> Tensor:
    """The one number of each candidate, (M,), as a sum: squeezing a slice makes inductor ask if M is 1."""
    return numbers_M1.sum(dim=1)

"""The outputs of ranking tasks, which depend on the loss that each task was trained with.

B rows (or candidates), K numbers of a task.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from exporter.config.blocks.tasks import Loss, TaskConfig


def task_outputs(tasks: Iterable[TaskConfig], numbers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every output of every task, by TorchEasyRec's names, from each task's numbers (B, K)."""
    outputs: dict[str, Tensor] = {}
    for task in tasks:
        suffix = f"_{task.name}" if task.name else ""
        for loss in task.losses:
            named = _outputs(task, loss, numbers[task.name])
            outputs |= {name + suffix: output for name, output in named.items()}
    return outputs


def _outputs(task: TaskConfig, loss: Loss, numbers_BK: Tensor) -> dict[str, Tensor]:
    match loss:
        case Loss.BINARY_CROSS_ENTROPY | Loss.BINARY_FOCAL:
            logits = _only(numbers_BK)
            return {"logits": logits, "probs": torch.sigmoid(logits)}
        case Loss.SOFTMAX_CROSS_ENTROPY | Loss.JRC:
            probs = torch.softmax(numbers_BK, dim=1)
            outputs = {"logits": numbers_BK, "probs": probs}
            return outputs | ({"probs1": _only(probs[:, 1:])} if task.num_class == 2 else {})
        case Loss.L2:
            return {"y": _only(numbers_BK)}


def _only(numbers_B1: Tensor) -> Tensor:
    """Return each row's only number, (B,), by a sum: squeezing a slice makes inductor ask whether B is 1."""
    return numbers_B1.sum(dim=1)

"""What a ranking model was trained to predict, which decides its outputs; pure data."""

from dataclasses import dataclass
from enum import StrEnum


class Loss(StrEnum):
    """What a task was trained with; it decides which outputs the task has."""

    BINARY_CROSS_ENTROPY = "binary_cross_entropy"
    BINARY_FOCAL = "binary_focal_loss"
    SOFTMAX_CROSS_ENTROPY = "softmax_cross_entropy"
    JRC = "jrc_loss"
    L2 = "l2_loss"


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """One of a model's tasks, or the only one, which has no name."""

    name: str = ""
    num_class: int = 1
    losses: tuple[Loss, ...]

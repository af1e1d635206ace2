"""Tasks of a ranking model: the losses it was trained with, which decide its outputs."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from exporter.config.pb.loss_pb2 import LossConfig
from exporter.config.refusals import raise_invalid, raise_unsupported


class Loss(StrEnum):
    """Loss that a task was trained with; it decides which outputs the task has."""

    BINARY_CROSS_ENTROPY = "binary_cross_entropy"
    BINARY_FOCAL = "binary_focal_loss"
    SOFTMAX_CROSS_ENTROPY = "softmax_cross_entropy"
    JRC = "jrc_loss"
    L2 = "l2_loss"


_CLASSES_OF_ONE_NUMBER = {Loss.BINARY_CROSS_ENTROPY, Loss.BINARY_FOCAL, Loss.L2}


@dataclass(frozen=True, kw_only=True)
class TaskConfig:
    """One task of a ranking model; the only task of a single-task model has an empty name."""

    name: str = ""
    num_class: int = 1
    losses: tuple[Loss, ...]


def read_task(losses: Collection[LossConfig], num_class: int, where: str, *, name: str = "") -> TaskConfig:
    """Read one task from the losses it was trained with; `where` is its place in the config.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: no loss, or a loss that does not fit the number of classes.
    """
    kinds = tuple(_read_loss(loss.WhichOneof("loss"), where) for loss in losses)
    if not kinds:
        raise_invalid(
            where, "it has no losses, which decide its outputs", hint="add the loss it was trained with"
        )
    for kind in kinds:
        if not _fits(kind, num_class):
            raise_invalid(
                where,
                f"num_class is {num_class}, which does not go with {kind}",
                hint="set one class for a number or a probability, two for jrc_loss, several for a softmax",
            )
    return TaskConfig(name=name, num_class=num_class, losses=kinds)


def check_task_names(names: Iterable[str], where: str) -> None:
    """Refuse a task without a name, and two of one name, because outputs' names end in the task's name."""
    seen: set[str] = set()
    for name in names:
        if not name:
            raise_invalid(where, "a task has no name", hint="write the name it was trained with")
        if name in seen:
            raise_invalid(where, f"two tasks are named {name}", hint="rename one of them")
        seen.add(name)


def _read_loss(kind: str | None, where: str) -> Loss:
    if kind not in set(Loss):
        raise_unsupported(
            where,
            "a loss of another kind than ranking models have",
            hint=f"supported are {', '.join(Loss)}",
        )
    return Loss(kind)


def _fits(loss: Loss, num_class: int) -> bool:
    if loss in _CLASSES_OF_ONE_NUMBER:
        return num_class == 1
    return num_class == 2 if loss is Loss.JRC else num_class > 1

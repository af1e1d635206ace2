"""The losses of a task, in whichever message they stand."""

from collections.abc import Collection, Iterable

from exporter.config.blocks.tasks import Loss, TaskConfig
from exporter.config.pb.loss_pb2 import LossConfig
from exporter.config.refusals import check_name, invalid, unsupported

_CLASSES_OF_ONE_NUMBER = {Loss.BINARY_CROSS_ENTROPY, Loss.BINARY_FOCAL, Loss.L2}


def read_task(losses: Collection[LossConfig], num_class: int, where: str, *, name: str = "") -> TaskConfig:
    """A task by what it was trained with; `where` is its place in the config.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: no loss, or one that does not go with the number of classes.
    """
    kinds = tuple(_read_loss(loss.WhichOneof("loss"), where) for loss in losses)
    if not kinds:
        invalid(where, "it has no losses, which decide its outputs", hint="add the loss it was trained with")
    for kind in kinds:
        if not _fits(kind, num_class):
            invalid(
                where,
                f"num_class is {num_class}, which does not go with {kind}",
                hint="one class for a number or a probability, two for jrc_loss, several for a softmax",
            )
    return TaskConfig(name=name, num_class=num_class, losses=kinds)


def check_names(names: Iterable[str], where: str) -> None:
    """No two tasks have one name, which is the end of their outputs' names."""
    seen: set[str] = set()
    for name in names:
        check_name(name, where)
        if name in seen:
            invalid(where, f"two tasks are named {name}", hint="rename one of them")
        seen.add(name)


def _read_loss(kind: str | None, where: str) -> Loss:
    if kind not in set(Loss):
        unsupported(
            where, "a loss of another kind than the family's", hint=f"supported are {', '.join(Loss)}"
        )
    return Loss(kind)


def _fits(loss: Loss, num_class: int) -> bool:
    if loss in _CLASSES_OF_ONE_NUMBER:
        return num_class == 1
    return num_class == 2 if loss is Loss.JRC else num_class > 1

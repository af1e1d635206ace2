"""Tasks with a tower each: an MLP, if the task has one, and a linear layer to the task's numbers."""

from collections.abc import Collection
from dataclasses import dataclass

from exporter.config.blocks.mlp import MlpConfig, read_optional_mlp
from exporter.config.blocks.tasks import TaskConfig, check_task_names, read_task
from exporter.config.pb.tower_pb2 import BayesTaskTower, InterventionTaskTower, TaskTower
from exporter.config.refusals import raise_invalid

TaskMessage = TaskTower | BayesTaskTower | InterventionTaskTower


@dataclass(frozen=True, kw_only=True)
class TaskTowerConfig:
    """A task, and the MLP in front of its linear layer."""

    task: TaskConfig
    mlp: MlpConfig | None = None


def read_task_towers(messages: Collection[TaskTower], where: str) -> tuple[TaskTowerConfig, ...]:
    """Read the tasks of a model; `where` is the model's place in the config, for errors.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: there are no tasks, or fields of one contradict each other.
    """
    check_task_towers(messages, where)
    return tuple(
        TaskTowerConfig(task=read_tower_task(message, where), mlp=read_tower_mlp(message, where))
        for message in messages
    )


def check_task_towers(messages: Collection[TaskMessage], where: str) -> None:
    """Refuse a model without tasks, and two tasks of one name."""
    if not messages:
        raise_invalid(f"{where}.task_towers", "there are none", hint="add the tasks it was trained with")
    check_task_names((message.tower_name for message in messages), f"{where}.task_towers")


def read_tower_task(message: TaskMessage, where: str) -> TaskConfig:
    return read_task(message.losses, message.num_class, task_place(message, where), name=message.tower_name)


def read_tower_mlp(message: TaskMessage, where: str) -> MlpConfig | None:
    return read_optional_mlp(message.mlp, f"{task_place(message, where)}.mlp", is_set=message.HasField("mlp"))


def task_place(message: TaskMessage, where: str) -> str:
    """Return the place of a task in the config, for errors."""
    return f"{where}: task {message.tower_name}"

"""Models of related tasks: layers that all tasks share, experts, and tasks that may read earlier tasks."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from exporter.config.blocks.first_group import FirstGroupConfig
from exporter.config.blocks.mask_net import MaskNetConfig
from exporter.config.blocks.mlp import MlpConfig, read_optional_mlp
from exporter.config.blocks.mmoe import MmoeConfig, read_mmoe
from exporter.config.blocks.task_towers import TaskMessage, TaskTowerConfig, check_task_towers
from exporter.config.pb.multi_task_models_pb2 import DBMTL, DC2VR
from exporter.config.refusals import check_name, raise_invalid
from exporter.redaction import name_first


@dataclass(frozen=True, kw_only=True)
class RelatedTask(TaskTowerConfig):
    """A task that may read the hidden outputs of earlier tasks."""

    relations: tuple[str, ...] = ()  # names of the earlier tasks that it reads


@dataclass(frozen=True, kw_only=True)
class RelatedTasksConfig(FirstGroupConfig):
    """Shared layers over the first group, experts, and the tasks."""

    mask_net: MaskNetConfig | None = None
    bottom_mlp: MlpConfig | None
    mmoe: MmoeConfig | None
    tasks: tuple[RelatedTask, ...]


def read_bottom_mlp(model: DBMTL | DC2VR, where: str) -> MlpConfig | None:
    return read_optional_mlp(model.bottom_mlp, f"{where}.bottom_mlp", is_set=model.HasField("bottom_mlp"))


def read_optional_mmoe(model: DBMTL | DC2VR, where: str) -> MmoeConfig | None:
    """Read the experts, or return None where the config has no expert_mlp."""
    return read_mmoe(model, where) if model.HasField("expert_mlp") else None


def check_related_tasks(messages: Collection[TaskMessage], where: str) -> None:
    """Refuse a model without tasks, and tasks of one name or of a name that weights cannot have."""
    check_task_towers(messages, where)
    for message in messages:
        check_name(message.tower_name, f"{where}.task_towers")


def check_relations(names: Sequence[str], earlier: Sequence[str], where: str, field: str) -> None:
    """Refuse names in `field` that are not those of earlier tasks; `where` is the task's place."""
    for name in names:
        if name not in earlier:
            raise_invalid(
                where,
                f"{field} has {name}, which is no task in front of it",
                hint=f"the tasks in front of it are {name_first(earlier)}"
                if earlier
                else "list a task before the tasks that read it",
            )

"""dc2vr: several tasks over one group, from whose hidden outputs the influence of earlier tasks is taken.

TorchEasyRec's documentation names no paper; models.blocks.multi_task.intervention has the formula.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.config.blocks.first_group import check_input, read_first_group
from exporter.config.blocks.related_tasks import (
    RelatedTask,
    RelatedTasksConfig,
    check_related_tasks,
    check_relations,
    read_bottom_mlp,
    read_optional_mmoe,
)
from exporter.config.blocks.task_towers import read_tower_mlp, read_tower_task, task_place
from exporter.config.families.family_spec import FamilySpec
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.tower_pb2 import InterventionTaskTower
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup

WHERE = "model_config.dc2vr"


@dataclass(frozen=True, kw_only=True)
class IntervenedTask(RelatedTask):
    """A task with an intervention, which its `relations` are the sources of, or without one."""

    low_rank_dim: int | None = (
        None  # width in which the task is compared with its sources; None: no intervention
    )


@dataclass(frozen=True, kw_only=True)
class Dc2vrConfig(RelatedTasksConfig):
    """dc2vr: shared layers over one group, experts, and tasks with interventions by earlier tasks."""

    tasks: tuple[IntervenedTask, ...]
    family: str = "dc2vr"

    def own_widths(self, in_features: int) -> dict[str, int]:
        """Return the width of each task's hidden output by itself, before it reads earlier tasks."""
        shared = in_features if self.bottom_mlp is None else self.bottom_mlp.width
        shared = shared if self.mmoe is None else self.mmoe.expert_mlp.width
        return {task.task.name: shared if task.mlp is None else task.mlp.width for task in self.tasks}


def read_dc2vr(message: ModelConfig) -> Dc2vrConfig:
    """Read the dc2vr model of a whole `model_config`; it reads the first feature group.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have, or an unknown activation.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.dc2vr
    check_related_tasks(model.task_towers, WHERE)
    names = [tower.tower_name for tower in model.task_towers]
    return Dc2vrConfig(
        input=read_first_group(message, WHERE),
        bottom_mlp=read_bottom_mlp(model, WHERE),
        mmoe=read_optional_mmoe(model, WHERE),
        tasks=tuple(_read_task(tower, names[:place]) for place, tower in enumerate(model.task_towers)),
    )


def check_dc2vr(model: Dc2vrConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a first group that is not one vector per row, and interventions as wide as what they compare.

    Raises:
        InvalidPipelineConfig: naming the group, or the task and the widths.
    """
    check_input(model, features, groups)
    widths = model.own_widths(GroupChecks(features, groups, WHERE).vector_width(model.input))
    for task in model.tasks:
        if task.low_rank_dim is None:
            continue
        own, source = widths[task.task.name], sum(widths[name] for name in task.relations)
        if task.low_rank_dim >= min(own, source):
            raise_invalid(
                f"{WHERE}: task {task.task.name}",
                f"low_rank_dim is {task.low_rank_dim}, the task's width {own} and its sources' {source}",
                hint="set low_rank_dim below both widths",
            )


def _read_task(message: InterventionTaskTower, earlier: Sequence[str]) -> IntervenedTask:
    where = task_place(message, WHERE)
    is_set = message.HasField("low_rank_dim")
    # Only an intervention reads the names.
    sources = tuple(message.intervention_tower_names) if is_set else ()
    if is_set and message.low_rank_dim == 0:
        raise_invalid(where, "low_rank_dim is 0", hint="set it above 0, or leave it out for no intervention")
    if is_set and not sources:
        raise_invalid(
            where,
            "low_rank_dim is set and there are no intervention_tower_names",
            hint="name the tasks that intervene, or leave low_rank_dim out",
        )
    check_relations(sources, earlier, where, "intervention_tower_names")
    return IntervenedTask(
        task=read_tower_task(message, WHERE),
        mlp=read_tower_mlp(message, WHERE),
        low_rank_dim=message.low_rank_dim if is_set else None,
        relations=sources,
    )


FAMILY = FamilySpec(message="dc2vr", kind="multi_task", read=read_dc2vr, check=check_dc2vr)

"""dbmtl (Wang et al. 2019, arXiv:1902.09154): several tasks over one group, which may read each other."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.config.blocks.first_group import check_input, read_first_group
from exporter.config.blocks.mask_net import check_mask_net_width, read_mask_net
from exporter.config.blocks.mlp import MlpConfig, read_optional_mlp
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
from exporter.config.pb.tower_pb2 import BayesTaskTower
from exporter.config.schema import Feature, FeatureGroup

WHERE = "model_config.dbmtl"


@dataclass(frozen=True, kw_only=True)
class RelatedTaskConfig(RelatedTask):
    """A task whose hidden output may go through an MLP together with those of earlier tasks."""

    relation_mlp: MlpConfig | None = None


@dataclass(frozen=True, kw_only=True)
class DbmtlConfig(RelatedTasksConfig):
    """dbmtl: shared layers over one group, experts, and tasks that may read earlier tasks."""

    tasks: tuple[RelatedTaskConfig, ...]
    family: str = "dbmtl"


def read_dbmtl(message: ModelConfig) -> DbmtlConfig:
    """Read the dbmtl model of a whole `model_config`; it reads the first feature group.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.dbmtl
    check_related_tasks(model.task_towers, WHERE)
    names = [tower.tower_name for tower in model.task_towers]
    return DbmtlConfig(
        input=read_first_group(message, WHERE),
        mask_net=read_mask_net(model.mask_net, f"{WHERE}.mask_net") if model.HasField("mask_net") else None,
        bottom_mlp=read_bottom_mlp(model, WHERE),
        mmoe=read_optional_mmoe(model, WHERE),
        tasks=tuple(_read_task(tower, names[:place]) for place, tower in enumerate(model.task_towers)),
    )


def check_dbmtl(model: DbmtlConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a first group that is not one vector per row, or too narrow for the MaskNet.

    Raises:
        InvalidPipelineConfig: naming the group or the MaskNet's field.
    """
    check_input(model, features, groups)
    if model.mask_net is not None:
        width = GroupChecks(features, groups, WHERE).vector_width(model.input)
        check_mask_net_width(model.mask_net, width, f"{WHERE}.mask_net")


def _read_task(message: BayesTaskTower, earlier: Sequence[str]) -> RelatedTaskConfig:
    where = task_place(message, WHERE)
    has_relation = message.HasField("relation_mlp")
    # Only relation_mlp reads the names.
    relations = tuple(message.relation_tower_names) if has_relation else ()
    check_relations(relations, earlier, where, "relation_tower_names")
    return RelatedTaskConfig(
        task=read_tower_task(message, WHERE),
        mlp=read_tower_mlp(message, WHERE),
        relation_mlp=read_optional_mlp(message.relation_mlp, f"{where}.relation_mlp", is_set=has_relation),
        relations=relations,
    )


FAMILY = FamilySpec(message="dbmtl", kind="multi_task", read=read_dbmtl, check=check_dbmtl)

"""dbmtl (Wang et al. 2019, arXiv:1902.09154): several tasks over one group, which may read each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.first_group import check_first_group, read_first_group
from exporter.config.blocks.mask_net import MaskNetConfig, check_mask_net_width, read_mask_net
from exporter.config.blocks.mlp import MlpConfig, read_mlp, read_optional_mlp
from exporter.config.blocks.mmoe import MmoeConfig
from exporter.config.blocks.tasks import TaskConfig, check_task_names, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.multi_task_models_pb2 import DBMTL
from exporter.config.pb.tower_pb2 import BayesTaskTower
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup
from exporter.redaction import name_first
from exporter.spec import TowerName

WHERE = "model_config.dbmtl"


@dataclass(frozen=True, kw_only=True)
class RelatedTaskConfig:
    """A task that may read the hidden outputs of earlier tasks."""

    task: TaskConfig
    mlp: MlpConfig | None = None
    relation_mlp: MlpConfig | None = None
    relations: tuple[str, ...] = ()  # earlier tasks whose hidden outputs relation_mlp reads as well


@dataclass(frozen=True, kw_only=True)
class DbmtlConfig(FamilyConfig):
    """dbmtl: shared layers over one group, experts, and tasks that may read earlier tasks."""

    input: str  # name of the config's first group
    mask_net: MaskNetConfig | None
    bottom_mlp: MlpConfig | None
    mmoe: MmoeConfig | None
    tasks: tuple[RelatedTaskConfig, ...]
    family: str = "dbmtl"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        return group == self.input


def read_dbmtl(message: ModelConfig) -> DbmtlConfig:
    """Read the dbmtl model of a whole `model_config`; it reads the first feature group.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.dbmtl
    return DbmtlConfig(
        input=read_first_group(message, WHERE),
        mask_net=read_mask_net(model.mask_net, f"{WHERE}.mask_net") if model.HasField("mask_net") else None,
        bottom_mlp=read_optional_mlp(
            model.bottom_mlp, f"{WHERE}.bottom_mlp", is_set=model.HasField("bottom_mlp")
        ),
        mmoe=_read_mmoe(model) if model.HasField("expert_mlp") else None,
        tasks=_read_tasks(model.task_towers),
    )


def check_dbmtl(model: DbmtlConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a first group that is not one vector per row, or too narrow for the MaskNet.

    Raises:
        InvalidPipelineConfig: naming the group or the MaskNet's field.
    """
    check_first_group(model.input, groups, model.family)
    if model.mask_net is not None:
        width = GroupChecks(features, groups, WHERE).vector_width(model.input)
        check_mask_net_width(model.mask_net, width, f"{WHERE}.mask_net")


def _read_mmoe(model: DBMTL) -> MmoeConfig:
    if model.num_expert == 0:
        raise_invalid(WHERE, "expert_mlp is set and num_expert is 0", hint="set num_expert above 0")
    return MmoeConfig(
        expert_mlp=read_mlp(model.expert_mlp, f"{WHERE}.expert_mlp"),
        num_expert=model.num_expert,
        gate_mlp=read_optional_mlp(model.gate_mlp, f"{WHERE}.gate_mlp", is_set=model.HasField("gate_mlp")),
    )


def _read_tasks(messages: Sequence[BayesTaskTower]) -> tuple[RelatedTaskConfig, ...]:
    where = f"{WHERE}.task_towers"
    if not messages:
        raise_invalid(where, "there are none", hint="add the tasks it was trained with")
    names = [message.tower_name for message in messages]
    check_task_names(names, where)
    return tuple(_read_task(message, names[:position]) for position, message in enumerate(messages))


def _read_task(message: BayesTaskTower, earlier: Sequence[str]) -> RelatedTaskConfig:
    where = f"{WHERE}: task {message.tower_name}"
    has_relation = message.HasField("relation_mlp")
    # Only relation_mlp reads the names.
    relations = tuple(message.relation_tower_names) if has_relation else ()
    for name in relations:
        if name not in earlier:
            raise_invalid(
                where,
                f"relation_tower_names has {name}, which is no task in front of it",
                hint=f"the tasks in front of it are {name_first(earlier)}"
                if earlier
                else "list a task before the tasks that read it",
            )
    return RelatedTaskConfig(
        task=read_task(message.losses, message.num_class, where, name=message.tower_name),
        mlp=read_optional_mlp(message.mlp, f"{where}.mlp", is_set=message.HasField("mlp")),
        relation_mlp=read_optional_mlp(message.relation_mlp, f"{where}.relation_mlp", is_set=has_relation),
        relations=relations,
    )


FAMILY = FamilySpec(message="dbmtl", kind="multi_task", read=read_dbmtl, check=check_dbmtl)

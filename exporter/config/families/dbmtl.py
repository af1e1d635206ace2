"""dbmtl: its message to its dataclass, and the feature group it needs."""

import math
from collections.abc import Mapping, Sequence

from google.protobuf.json_format import MessageToDict

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.mlp_messages import read_mlp
from exporter.config.blocks.task_messages import check_names, read_task
from exporter.config.families.ranking import (
    DbmtlConfig,
    MaskBlockConfig,
    MaskNetConfig,
    MmoeConfig,
    RelatedTaskConfig,
)
from exporter.config.features.widths import encoder_widths, features_width
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.module_pb2 import MLP, MaskBlock, MaskNetModule
from exporter.config.pb.multi_task_models_pb2 import DBMTL
from exporter.config.pb.tower_pb2 import BayesTaskTower
from exporter.config.refusals import invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind

WHERE = "model_config.dbmtl"


def read_dbmtl(message: ModelConfig) -> DbmtlConfig:
    """The model of a whole `model_config`: its own message, and the group that it reads.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.dbmtl
    if not message.feature_groups:
        invalid(WHERE, "there is no feature group to read", hint="add the group it was trained with")
    return DbmtlConfig(
        input=message.feature_groups[0].group_name,
        mask_net=_read_mask_net(model.mask_net, f"{WHERE}.mask_net") if model.HasField("mask_net") else None,
        bottom_mlp=_optional(model.bottom_mlp, model.HasField("bottom_mlp"), f"{WHERE}.bottom_mlp"),
        mmoe=_read_mmoe(model) if model.HasField("expert_mlp") else None,
        tasks=_read_tasks(model.task_towers),
    )


def check_dbmtl(model: DbmtlConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """The group that the model reads is one vector per row, and as wide as the model needs it.

    Raises:
        InvalidPipelineConfig: it is of another kind, or too narrow.
    """
    group = next(group for group in groups if group.name == model.input)
    if group.kind is not GroupKind.DEEP:
        invalid(
            f"feature_groups: {group.name}",
            f"group_type is {group.kind}, but dbmtl reads the first group, as one vector per row",
            hint="put the DEEP group that it was trained with in front",
        )
    if model.mask_net is not None:
        _check_mask_net(model.mask_net, group, {feature.name: feature for feature in features})


def _check_mask_net(config: MaskNetConfig, group: FeatureGroup, features: Mapping[str, Feature]) -> None:
    """The part of the width that a ratio leaves is one number at least."""
    width = features_width(group, features) + sum(encoder_widths(group, features))
    behind = config.block.hidden_dim if not config.parallel and config.blocks > 1 else width
    if config.block.middle(min(width, behind)) == 0:
        invalid(
            f"{WHERE}.mask_net.mask_block",
            f"reduction_ratio {config.block.reduction_ratio:g} of a width of {min(width, behind)} is below 1",
            hint="raise reduction_ratio, or set it to 0 and aggregation_dim above 0",
        )


def _read_mask_net(message: MaskNetModule, where: str) -> MaskNetConfig:
    if message.n_mask_blocks == 0:
        invalid(where, "n_mask_blocks is 0", hint="set at least 1")
    return MaskNetConfig(
        blocks=message.n_mask_blocks,
        block=_read_mask_block(message.mask_block, f"{where}.mask_block"),
        top_mlp=_optional(message.top_mlp, message.HasField("top_mlp"), f"{where}.top_mlp"),
        parallel=message.use_parallel,
    )


def _read_mask_block(message: MaskBlock, where: str) -> MaskBlockConfig:
    """reduction_ratio wins where both are set, and is 1 where it is not written."""
    # As the decimal number that is written: times a width, its float32 may fall short of a whole number.
    written = MessageToDict(message, preserving_proto_field_name=True)
    ratio = float(written.get("reduction_ratio", message.reduction_ratio))
    if message.hidden_dim == 0:
        invalid(where, "hidden_dim is 0", hint="set it above 0")
    if not math.isfinite(ratio) or ratio < 0 or (ratio == 0 and message.aggregation_dim == 0):
        invalid(
            where,
            f"reduction_ratio is {ratio:g} and aggregation_dim {message.aggregation_dim}",
            hint="set reduction_ratio above 0, or to 0 with aggregation_dim above 0",
        )
    return MaskBlockConfig(
        hidden_dim=message.hidden_dim,
        reduction_ratio=ratio,
        aggregation_dim=0 if ratio else message.aggregation_dim,
    )


def _read_mmoe(model: DBMTL) -> MmoeConfig:
    if model.num_expert == 0:
        invalid(WHERE, "expert_mlp is set and num_expert is 0", hint="set num_expert above 0")
    return MmoeConfig(
        expert_mlp=read_mlp(model.expert_mlp, f"{WHERE}.expert_mlp"),
        num_expert=model.num_expert,
        gate_mlp=_optional(model.gate_mlp, model.HasField("gate_mlp"), f"{WHERE}.gate_mlp"),
    )


def _read_tasks(messages: Sequence[BayesTaskTower]) -> tuple[RelatedTaskConfig, ...]:
    where = f"{WHERE}.task_towers"
    if not messages:
        invalid(where, "there are none", hint="add the tasks it was trained with")
    names = [message.tower_name for message in messages]
    check_names(names, where)
    return tuple(_read_task(message, names[:position]) for position, message in enumerate(messages))


def _read_task(message: BayesTaskTower, earlier: Sequence[str]) -> RelatedTaskConfig:
    where = f"{WHERE}: task {message.tower_name}"
    has_relation = message.HasField("relation_mlp")
    # Without relation_mlp nothing reads the names.
    relations = tuple(message.relation_tower_names) if has_relation else ()
    for name in relations:
        if name not in earlier:
            invalid(
                where,
                f"relation_tower_names has {name}, which is no task in front of it",
                hint=f"the tasks in front of it are {', '.join(earlier)}"
                if earlier
                else "list tasks first that others build upon",
            )
    return RelatedTaskConfig(
        task=read_task(message.losses, message.num_class, where, name=message.tower_name),
        mlp=_optional(message.mlp, message.HasField("mlp"), f"{where}.mlp"),
        relation_mlp=_optional(message.relation_mlp, has_relation, f"{where}.relation_mlp"),
        relations=relations,
    )


def _optional(message: MLP, is_set: bool, where: str) -> MlpConfig | None:
    return read_mlp(message, where) if is_set else None

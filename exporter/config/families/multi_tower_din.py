"""multi_tower_din: its message to its dataclass, and the feature groups it needs."""

from collections.abc import Iterable, Sequence

from exporter.config.blocks.mlp_messages import read_mlp
from exporter.config.blocks.sequence_encoders import check_attention_widths
from exporter.config.blocks.task_messages import read_task
from exporter.config.families.hstu_groups import GroupInputs
from exporter.config.families.ranking import MultiTowerDinConfig, TowerMlpConfig
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.tower_pb2 import Tower
from exporter.config.refusals import invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind

WHERE = "model_config.multi_tower_din"


def read_multi_tower_din(message: ModelConfig) -> MultiTowerDinConfig:
    """The model of a whole `model_config`: its own message, and what stands beside it.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.multi_tower_din
    if not model.towers and not model.din_towers:
        invalid(WHERE, "it has no towers and no din_towers", hint="add those it was trained with")
    _check_inputs(tower.input for tower in model.towers)
    return MultiTowerDinConfig(
        deep_towers=tuple(_read_tower(tower) for tower in model.towers),
        din_towers=tuple(
            TowerMlpConfig(
                group=tower.input,
                mlp=read_mlp(tower.attn_mlp, f"{WHERE}.din_towers: {tower.input}.attn_mlp"),
            )
            for tower in model.din_towers
        ),
        final=read_mlp(model.final, f"{WHERE}.final"),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_multi_tower_din(
    model: MultiTowerDinConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Every group that a tower reads is there, of the right kind and width.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    inputs = GroupInputs(features, groups, WHERE)
    for tower in model.deep_towers:
        inputs.require(tower.group, "one of its towers", GroupKind.DEEP)
    for tower in model.din_towers:
        inputs.require(tower.group, "one of its din_towers", GroupKind.SEQUENCE)
        members = inputs.members(tower.group)
        check_attention_widths(
            f"feature_groups: {tower.group}",
            query_width=sum(feature.width for feature in members if not feature.is_sequence),
            sequence_width=sum(feature.width for feature in members if feature.is_sequence),
        )


def _read_tower(message: Tower) -> TowerMlpConfig:
    where = f"{WHERE}.towers: {message.input}"
    if not message.HasField("mlp"):
        invalid(where, "it has no mlp", hint="add the mlp it was trained with")
    return TowerMlpConfig(group=message.input, mlp=read_mlp(message.mlp, f"{where}.mlp"))


def _check_inputs(groups: Iterable[str]) -> None:
    """A tower is known by its group."""
    seen: set[str] = set()
    for group in groups:
        if group in seen:
            invalid(f"{WHERE}.towers", f"two towers read group {group}", hint="delete one of the two")
        seen.add(group)

"""multi_tower_din: towers over DEEP groups, and DIN attention (arXiv:1706.06978) over padded histories."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig, read_mlp, read_optional_mlp
from exporter.config.blocks.sequence_encoders import check_attention_widths
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.tower_pb2 import Tower
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.spec import TowerName

WHERE = "model_config.multi_tower_din"


@dataclass(frozen=True, kw_only=True)
class TowerMlpConfig:
    """An MLP over a group: a tower over a DEEP group, or the scorer of a padded group's elements."""

    group: str
    mlp: MlpConfig


@dataclass(frozen=True, kw_only=True)
class MultiTowerDinConfig(FamilyConfig):
    """multi_tower_din: an MLP per DEEP group, DIN attention per padded history, one MLP over all of them."""

    deep_towers: tuple[TowerMlpConfig, ...]  # `towers` in the config
    din_towers: tuple[TowerMlpConfig, ...] = ()
    final: MlpConfig | None  # None: the towers' outputs are joined as they are
    task: TaskConfig
    family: str = "multi_tower_din"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        """Return whether one of the towers is over the group."""
        return any(group == part.group for part in (*self.deep_towers, *self.din_towers))


def read_multi_tower_din(message: ModelConfig) -> MultiTowerDinConfig:
    """Read the multi_tower_din model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.multi_tower_din
    if not model.towers and not model.din_towers:
        raise_invalid(WHERE, "it has no towers and no din_towers", hint="add those it was trained with")
    return MultiTowerDinConfig(
        deep_towers=read_towers(model.towers, f"{WHERE}.towers"),
        din_towers=tuple(
            TowerMlpConfig(
                group=tower.input,
                mlp=read_mlp(tower.attn_mlp, f"{WHERE}.din_towers: {tower.input}.attn_mlp"),
            )
            for tower in model.din_towers
        ),
        final=read_optional_mlp(model.final, f"{WHERE}.final", is_set=model.HasField("final")),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_multi_tower_din(
    model: MultiTowerDinConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Refuse a config in which a group that a tower reads is missing, or not of the kind or width it needs.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    checks = GroupChecks(features, groups, f"model_config.{model.family}")
    for tower in model.deep_towers:
        checks.require_group(tower.group, "one of its towers", GroupKind.DEEP)
    for tower in model.din_towers:
        checks.require_group(tower.group, "one of its din_towers", GroupKind.SEQUENCE)
        members = checks.members(tower.group)
        check_attention_widths(
            f"feature_groups: {tower.group}",
            query_width=sum(feature.width for feature in members if not feature.is_sequence),
            sequence_width=sum(feature.width for feature in members if feature.is_sequence),
        )


def read_towers(messages: Sequence[Tower], where: str) -> tuple[TowerMlpConfig, ...]:
    """Read the towers over DEEP groups, which the checkpoint names after their groups.

    Raises:
        InvalidPipelineConfig: two towers over one group, or one without an MLP.
    """
    names = [message.input for message in messages]
    for position, name in enumerate(names):
        if name in names[:position]:
            raise_invalid(where, f"two towers read group {name}", hint="delete one of the two")
    return tuple(_read_tower(message, f"{where}: {message.input}") for message in messages)


def _read_tower(message: Tower, where: str) -> TowerMlpConfig:
    if not message.HasField("mlp"):
        raise_invalid(where, "it has no mlp", hint="add the mlp it was trained with")
    return TowerMlpConfig(group=message.input, mlp=read_mlp(message.mlp, f"{where}.mlp"))


FAMILY = FamilySpec(
    message="multi_tower_din", kind="rank", read=read_multi_tower_din, check=check_multi_tower_din
)

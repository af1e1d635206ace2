"""tdm (Zhu et al. 2018, arXiv:1801.02294): scores nodes of a tree of items; embeds items to build it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.blocks.sequence_encoders import (
    MultiWindowDinEncoderConfig,
    check_attention_widths,
    read_multi_window_din,
)
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import FamilyConfig
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import FeatureGroupType, ModelConfig
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.spec import TowerName

WHERE = "model_config.tdm"


@dataclass(frozen=True, kw_only=True)
class TdmConfig(FamilyConfig):
    """tdm: multi-window DIN over the history and one MLP over all groups; the items' vectors for the tree.

    The tree's vectors are the query of the first padded group; the history is that of the last.
    """

    item_group: str
    history: MultiWindowDinEncoderConfig
    deep_groups: tuple[str, ...]
    final: MlpConfig
    task: TaskConfig
    family: str = "tdm"
    towers: ClassVar[tuple[TowerName, ...]] = (TowerName.MODEL, TowerName.EMBEDDING)

    def reads(self, tower: TowerName, group: str) -> bool:
        """Return whether the tower reads the group; the tree's vectors are made of one group's query."""
        read = (self.item_group,) if tower is TowerName.EMBEDDING else (self.history.group, *self.deep_groups)
        return group in read

    def reads_sequences(self, tower: TowerName) -> bool:
        return tower is not TowerName.EMBEDDING


def read_tdm(message: ModelConfig) -> TdmConfig:
    """Read the tdm model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: there is no padded group, or fields contradict each other.
    """
    model = message.tdm
    padded: list[str] = []
    others: list[str] = []
    for group in message.feature_groups:
        names = padded if group.group_type == FeatureGroupType.SEQUENCE else others
        names.append(group.group_name)
    if not padded:
        raise_invalid(
            WHERE,
            "multiwindow_din needs a feature group of group_type SEQUENCE, and there is none",
            hint="add the group of the candidate's and the history's features",
        )
    where = f"{WHERE}.multiwindow_din"
    return TdmConfig(
        item_group=padded[0],
        history=read_multi_window_din(model.multiwindow_din, where, group=padded[-1]),
        deep_groups=tuple(others),
        final=read_mlp(model.final, f"{WHERE}.final"),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_tdm(model: TdmConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a history that multi-window DIN cannot read, and other groups that are not DEEP.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    checks = GroupChecks(features, groups, WHERE)
    for name in model.deep_groups:
        checks.require_group(name, "a part of the final MLP's input", GroupKind.DEEP)
    for name in dict.fromkeys((model.item_group, model.history.group)):
        members = checks.members(name)
        check_attention_widths(
            f"feature_groups: {name}",
            query_width=sum(feature.width for feature in members if not feature.is_sequence),
            sequence_width=sum(feature.width for feature in members if feature.is_sequence),
        )


FAMILY = FamilySpec(message="tdm", kind="match", read=read_tdm, check=check_tdm)

"""xdeepfm (Lian et al. 2018, arXiv:1803.05170): a compressed interaction network beside a deep MLP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.families.rank.wide_and_deep import DEEP, WIDE
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.spec import TowerName

WHERE = "model_config.xdeepfm"


@dataclass(frozen=True, kw_only=True)
class XDeepFmConfig(FamilyConfig):
    """xdeepfm: a compressed interaction network over group `wide` and an MLP over `deep`."""

    wide_dim: int  # wide_embedding_dim: the width of every feature of group `wide`
    interaction_layers: tuple[int, ...]  # cin.cin_layer_size: vectors that each layer makes
    deep: MlpConfig
    final: MlpConfig
    task: TaskConfig
    family: str = "xdeepfm"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        return group in (WIDE, DEEP)


def read_xdeepfm(message: ModelConfig) -> XDeepFmConfig:
    """Read the xdeepfm model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.xdeepfm
    if not model.cin.cin_layer_size or 0 in model.cin.cin_layer_size:
        raise_invalid(
            f"{WHERE}.cin", "cin_layer_size is empty or holds a 0", hint="list the size of every layer"
        )
    return XDeepFmConfig(
        wide_dim=model.wide_embedding_dim,
        interaction_layers=tuple(model.cin.cin_layer_size),
        deep=read_mlp(model.deep, f"{WHERE}.deep"),
        final=read_mlp(model.final, f"{WHERE}.final"),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_xdeepfm(model: XDeepFmConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a config in which a group is missing, or the features of `wide` have another width.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    checks = GroupChecks(features, groups, WHERE)
    checks.require_group(WIDE, "its interaction network", GroupKind.WIDE)
    checks.require_group(DEEP, "its deep part", GroupKind.DEEP)
    width = checks.require_equal_widths(WIDE, "the interaction network multiplies them")
    if width != model.wide_dim:
        raise_invalid(
            f"feature_groups: {WIDE}",
            f"its features are {width} wide, and wide_embedding_dim is {model.wide_dim}",
            hint="use group_type WIDE and a wide_embedding_dim above 0, which is then the width of each",
        )


FAMILY = FamilySpec(message="xdeepfm", kind="rank", read=read_xdeepfm, check=check_xdeepfm)

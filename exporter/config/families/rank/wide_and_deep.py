"""wide_and_deep (Cheng et al. 2016, arXiv:1606.07792): one number per feature value beside a deep MLP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig, read_mlp, read_optional_mlp
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.spec import TowerName

WIDE, DEEP = "wide", "deep"


@dataclass(frozen=True, kw_only=True)
class WideAndDeepConfig(FamilyConfig):
    """wide_and_deep: an MLP over group `deep`, and the sum of group `wide`."""

    deep: MlpConfig
    final: MlpConfig | None  # over both together; None: they are added
    task: TaskConfig
    family: str = "wide_and_deep"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        return group in (WIDE, DEEP)


def read_wide_and_deep(message: ModelConfig) -> WideAndDeepConfig:
    """Read the wide_and_deep model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model, where = message.wide_and_deep, "model_config.wide_and_deep"
    return WideAndDeepConfig(
        deep=read_mlp(model.deep, f"{where}.deep"),
        final=read_optional_mlp(model.final, f"{where}.final", is_set=model.HasField("final")),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_wide_and_deep(
    model: WideAndDeepConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Refuse a config in which a group that the model reads is missing, or not one vector per row.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    checks = GroupChecks(features, groups, f"model_config.{model.family}")
    checks.require_group(WIDE, "its wide part", GroupKind.WIDE)
    checks.require_group(DEEP, "its deep part", GroupKind.DEEP)


FAMILY = FamilySpec(message="wide_and_deep", kind="rank", read=read_wide_and_deep, check=check_wide_and_deep)

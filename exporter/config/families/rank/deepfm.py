"""deepfm (Guo et al. 2017, arXiv:1703.04247): wide_and_deep with a factorization machine beside the two."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.config.blocks.mlp import read_mlp, read_optional_mlp
from exporter.config.blocks.tasks import read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.families.rank.wide_and_deep import DEEP, WideAndDeepConfig, check_wide_and_deep
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.spec import TowerName

WHERE = "model_config.deepfm"
_FM = "fm"


@dataclass(frozen=True, kw_only=True)
class DeepFmConfig(WideAndDeepConfig):
    """deepfm: an MLP over group `deep`, the sum of group `wide`, and products of features."""

    fm: str  # group of the features that are multiplied: `fm`, or `deep` where there is none
    family: str = "deepfm"

    def reads(self, tower: TowerName, group: str) -> bool:
        return super().reads(tower, group) or group == self.fm


def read_deepfm(message: ModelConfig) -> DeepFmConfig:
    """Read the deepfm model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.deepfm
    has_fm = any(group.group_name == _FM for group in message.feature_groups)
    return DeepFmConfig(
        deep=read_mlp(model.deep, f"{WHERE}.deep"),
        fm=_FM if has_fm else DEEP,
        final=read_optional_mlp(model.final, f"{WHERE}.final", is_set=model.HasField("final")),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_deepfm(model: DeepFmConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a config without the groups of wide_and_deep, or whose multiplied features differ in width.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    check_wide_and_deep(model, features, groups)
    checks = GroupChecks(features, groups, WHERE)
    checks.require_group(model.fm, "its factorization machine", GroupKind.DEEP)
    alone = "" if model.fm == _FM else f", as there is no group {_FM}"
    checks.require_equal_widths(model.fm, f"the factorization machine multiplies them{alone}")


FAMILY = FamilySpec(message="deepfm", kind="rank", read=read_deepfm, check=check_deepfm)

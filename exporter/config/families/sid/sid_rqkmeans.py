"""sid_rqkmeans: semantic ids by k-means of a vector, and again of what each codebook has left of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from exporter.config.blocks.first_group import check_first_group, read_first_group
from exporter.config.blocks.residual_quantizer import SidConfig, read_residual_quantizer
from exporter.config.families.family_spec import FamilySpec
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.schema import Feature, FeatureGroup

WHERE = "model_config.sid_rqkmeans"


@dataclass(frozen=True, kw_only=True)
class SidRqkmeansConfig(SidConfig):
    """sid_rqkmeans: the first group's vector, quantised by centroids."""

    family: str = "sid_rqkmeans"


def read_sid_rqkmeans(message: ModelConfig) -> SidRqkmeansConfig:
    """Read the sid_rqkmeans model of a whole `model_config`; it reads the first feature group.

    Raises:
        UnsupportedConfig: candidates that are found in an unknown way.
        InvalidPipelineConfig: fields that contradict each other.
    """
    return SidRqkmeansConfig(
        input=read_first_group(message, WHERE),
        quantizer=read_residual_quantizer(message.sid_rqkmeans, WHERE),
    )


def check_sid_rqkmeans(
    model: SidRqkmeansConfig, _features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Refuse a first group that is not one vector per row; raises InvalidPipelineConfig naming it."""
    check_first_group(model.input, groups, model.family)


FAMILY = FamilySpec(message="sid_rqkmeans", kind="sid", read=read_sid_rqkmeans, check=check_sid_rqkmeans)

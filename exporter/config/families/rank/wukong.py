"""wukong (Zhang et al. 2024, arXiv:2403.02545): layers of products and sums of vectors under an MLP."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.dense_and_sparse import (
    DenseAndSparse,
    check_dense_and_sparse,
    read_dense_and_sparse,
)
from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.blocks.tasks import TaskConfig, read_task
from exporter.config.blocks.wukong import WukongLayerConfig, read_wukong_layer
from exporter.config.families.family_spec import FamilySpec
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.schema import Feature, FeatureGroup
from exporter.spec import TowerName

WHERE = "model_config.wukong"


@dataclass(frozen=True, kw_only=True)
class WukongConfig(FamilyConfig):
    """wukong: layers over vectors of one width, and an MLP over what the last layer makes."""

    inputs: DenseAndSparse
    layers: tuple[WukongLayerConfig, ...]
    final: MlpConfig
    task: TaskConfig
    family: str = "wukong"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        return self.inputs.reads(group)


def read_wukong(message: ModelConfig) -> WukongConfig:
    """Read the wukong model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.wukong
    return WukongConfig(
        inputs=read_dense_and_sparse(message, model, WHERE),
        layers=tuple(
            read_wukong_layer(layer, f"{WHERE}.wukong_layers[{position}]")
            for position, layer in enumerate(model.wukong_layers)
        ),
        final=read_mlp(model.final, f"{WHERE}.final"),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


def check_wukong(model: WukongConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a config in which a group is missing or its widths do not fit.

    Raises:
        InvalidPipelineConfig: naming the group and what the model needs it for.
    """
    check_dense_and_sparse(model.inputs, features, groups, WHERE)


FAMILY = FamilySpec(message="wukong", kind="rank", read=read_wukong, check=check_wukong)

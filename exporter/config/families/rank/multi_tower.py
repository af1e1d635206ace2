"""multi_tower: an MLP per DEEP group, and one MLP over all of them."""

from dataclasses import dataclass

from exporter.config.blocks.mlp import read_optional_mlp
from exporter.config.blocks.tasks import read_task
from exporter.config.families.family_spec import FamilySpec
from exporter.config.families.rank.multi_tower_din import (
    MultiTowerDinConfig,
    check_multi_tower_din,
    read_towers,
)
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid

WHERE = "model_config.multi_tower"


@dataclass(frozen=True, kw_only=True)
class MultiTowerConfig(MultiTowerDinConfig):
    """multi_tower: the towers over DEEP groups that multi_tower_din has beside its others."""

    family: str = "multi_tower"


def read_multi_tower(message: ModelConfig) -> MultiTowerConfig:
    """Read the multi_tower model of a whole `model_config`.

    Raises:
        UnsupportedConfig: a loss that ranking models do not have.
        InvalidPipelineConfig: fields that contradict each other.
    """
    model = message.multi_tower
    if not model.towers:
        raise_invalid(WHERE, "it has no towers", hint="add those it was trained with")
    return MultiTowerConfig(
        deep_towers=read_towers(model.towers, f"{WHERE}.towers"),
        final=read_optional_mlp(model.final, f"{WHERE}.final", is_set=model.HasField("final")),
        task=read_task(message.losses, message.num_class, "model_config"),
    )


FAMILY = FamilySpec(message="multi_tower", kind="rank", read=read_multi_tower, check=check_multi_tower_din)

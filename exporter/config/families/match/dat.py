"""dat (Yu et al., DLP-KDD 2021): dssm with two groups per tower, one of which augments the other."""

from dataclasses import dataclass

from exporter.config.blocks.match_towers import (
    DeepTowerConfig,
    read_output_dim,
    read_similarity,
    read_tower_mlp,
)
from exporter.config.families.family_spec import FamilySpec
from exporter.config.families.match.dssm import DssmConfig, check_dssm
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.tower_pb2 import DATTower
from exporter.config.refusals import raise_invalid

WHERE = "model_config.dat"


@dataclass(frozen=True, kw_only=True)
class DatConfig(DssmConfig):
    """dat: each tower reads its own group, then the group that augments it."""

    family: str = "dat"


def read_dat(message: ModelConfig) -> DatConfig:
    model = message.dat
    return DatConfig(
        user=_read_tower(model.user_tower, f"{WHERE}.user_tower"),
        item=_read_tower(model.item_tower, f"{WHERE}.item_tower"),
        output_dim=read_output_dim(model),
        similarity=read_similarity(model),
    )


def _read_tower(message: DATTower, where: str) -> DeepTowerConfig:
    inputs = (message.input, message.augment_input)
    if len(set(inputs)) == 1:
        raise_invalid(where, f"input and augment_input are both {message.input}", hint="name two groups")
    return DeepTowerConfig(inputs=inputs, mlp=read_tower_mlp(message.mlp, f"{where}.mlp"))


FAMILY = FamilySpec(message="dat", kind="match", read=read_dat, check=check_dssm)

"""dssm (Huang et al., CIKM 2013): two deep towers, each over one feature group."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from exporter.config.blocks.match_towers import (
    DeepTowerConfig,
    MatchConfig,
    check_equal_widths,
    read_deep_tower,
    read_output_dim,
    read_similarity,
)
from exporter.config.families.family_spec import FamilySpec
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.match_models_pb2 import DSSM, DSSMV2
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class DssmConfig(MatchConfig):
    """dssm: one vector per user and one per item, each computed from DEEP groups."""

    user: DeepTowerConfig
    family: str = "dssm"

    def reads(self, tower: TowerName, group: str) -> bool:
        """Return whether the tower reads the group; a group that no tower names is not read."""
        return group in (self.item if tower is TowerName.ITEM else self.user).inputs


Towers = TypeVar("Towers", bound=DssmConfig)


def read_dssm(message: ModelConfig) -> DssmConfig:
    return read_towers(DssmConfig, message.dssm, "model_config.dssm")


def read_towers(config: type[Towers], model: DSSM | DSSMV2, where: str) -> Towers:
    """Read a model of two deep towers; `where` is its place in the config, for errors."""
    return config(
        user=read_deep_tower(model.user_tower, f"{where}.user_tower"),
        item=read_deep_tower(model.item_tower, f"{where}.item_tower"),
        output_dim=read_output_dim(model),
        similarity=read_similarity(model),
    )


def check_dssm(model: DssmConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a config in which a tower's groups are not there or not DEEP, or the towers' widths differ."""
    checks = GroupChecks(features, groups, f"model_config.{model.family}")
    for tower, purpose in ((model.item, "the item"), (model.user, "the user")):
        for name in tower.inputs:
            checks.require_group(name, purpose, GroupKind.DEEP)
    check_equal_widths(model, user=_width(model.user, checks), item=_width(model.item, checks))


def _width(tower: DeepTowerConfig, checks: GroupChecks) -> int:
    return tower.mlp.width if tower.mlp else sum(checks.vector_width(name) for name in tower.inputs)


FAMILY = FamilySpec(message="dssm", kind="match", read=read_dssm, check=check_dssm)

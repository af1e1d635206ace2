"""Models that read the first feature group of a config, and no other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class FirstGroupConfig(FamilyConfig):
    """A model of one tower, over the first feature group."""

    input: str  # name of the config's first group
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        return group == self.input


def read_first_group(message: ModelConfig, where: str) -> str:
    """Return the name of the first feature group; `where` is the model's place in the config, for errors.

    Raises:
        InvalidPipelineConfig: there is no group.
    """
    if not message.feature_groups:
        raise_invalid(where, "there is no feature group to read", hint="add the group it was trained with")
    return message.feature_groups[0].group_name


def check_input(
    model: FirstGroupConfig, _features: Sequence[Feature], groups: Sequence[FeatureGroup]
) -> None:
    """Refuse a first group that is not one vector per row; this is the whole check of most such families.

    Raises:
        InvalidPipelineConfig: naming the group and its kind.
    """
    check_first_group(model.input, groups, model.family)


def check_first_group(name: str, groups: Sequence[FeatureGroup], family: str) -> None:
    """Refuse a first group that is not one vector per row.

    Raises:
        InvalidPipelineConfig: naming the group and its kind.
    """
    group = next(group for group in groups if group.name == name)
    if not group.kind.is_row_vector:
        raise_invalid(
            f"feature_groups: {group.name}",
            f"group_type is {group.kind}, but {family} reads the first group, as one vector per row",
            hint="put the DEEP group that it was trained with in front",
        )

"""The ranking families without HSTU as frozen dataclasses; training-only fields are left out."""

from dataclasses import dataclass
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import TaskConfig
from exporter.config.family import ONE_TOWER, FamilyConfig
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class TowerMlpConfig:
    """Perceptrons over a group: a tower over a DEEP one, a scorer of elements over a padded one."""

    group: str
    mlp: MlpConfig


@dataclass(frozen=True, kw_only=True)
class MultiTowerDinConfig(FamilyConfig):
    """multi_tower_din: towers over groups, attention over padded histories, perceptrons over all of them."""

    deep_towers: tuple[TowerMlpConfig, ...]  # `towers` in the config
    din_towers: tuple[TowerMlpConfig, ...]
    final: MlpConfig
    task: TaskConfig
    family: str = "multi_tower_din"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        """The groups of its towers over groups."""
        return any(group == part.group for part in (*self.deep_towers, *self.din_towers))


@dataclass(frozen=True, kw_only=True)
class MaskBlockConfig:
    """One block of a mask net: the widths within. Of the two about the middle, one is set."""

    hidden_dim: int
    reduction_ratio: float = 0.0  # the middle's width as a part of what comes in; 0: aggregation_dim is it
    aggregation_dim: int = 0

    def middle(self, in_features: int) -> int:
        """The width between the two layers that make the mask."""
        return int(in_features * self.reduction_ratio) if self.reduction_ratio else self.aggregation_dim


@dataclass(frozen=True, kw_only=True)
class MaskNetConfig:
    """mask_net: blocks that weigh the features by themselves, side by side or one behind the other."""

    blocks: int
    block: MaskBlockConfig
    top_mlp: MlpConfig | None = None
    parallel: bool = True


@dataclass(frozen=True, kw_only=True)
class MmoeConfig:
    """Experts that every task mixes by a gate of its own."""

    expert_mlp: MlpConfig
    num_expert: int
    gate_mlp: MlpConfig | None = None


@dataclass(frozen=True, kw_only=True)
class RelatedTaskConfig:
    """A task that may read what came of tasks in front of it."""

    task: TaskConfig
    mlp: MlpConfig | None = None
    relation_mlp: MlpConfig | None = None
    relations: tuple[str, ...] = ()  # tasks whose outcome relation_mlp reads beside the task's own


@dataclass(frozen=True, kw_only=True)
class DbmtlConfig(FamilyConfig):
    """dbmtl: one group, shared layers, experts, and tasks that build upon each other."""

    input: str  # group name: the first of the config
    mask_net: MaskNetConfig | None
    bottom_mlp: MlpConfig | None
    mmoe: MmoeConfig | None
    tasks: tuple[RelatedTaskConfig, ...]
    family: str = "dbmtl"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    def reads(self, _tower: TowerName, group: str) -> bool:
        """Its one group."""
        return group == self.input

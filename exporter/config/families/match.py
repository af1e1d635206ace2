"""The match families as frozen dataclasses: two towers, each with tables of its own.

What only training reads is left out: temperature, in_batch_negative, simi_pow, the weights of losses.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.hstu import Similarity
from exporter.config.family import TWO_TOWERS, FamilyConfig
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class DeepTowerConfig:
    """DEEP groups side by side, perceptrons over them, and perhaps a projection."""

    inputs: tuple[str, ...]  # group names, in the order of their vectors
    mlp: MlpConfig | None  # None: the groups' vectors as they are


@dataclass(frozen=True, kw_only=True)
class DssmConfig(FamilyConfig):
    """dssm, and dat, whose towers read two groups each: their own, and one that augments it."""

    family: str
    user: DeepTowerConfig
    item: DeepTowerConfig
    output_dim: int  # 0: no projection
    similarity: Similarity
    towers: ClassVar[tuple[TowerName, ...]] = TWO_TOWERS
    tables_are_shared: ClassVar[bool] = False

    def reads(self, tower: TowerName, group: str) -> bool:
        """The groups that it names; one that neither tower names enters no model."""
        return group in (self.item if tower is TowerName.ITEM else self.user).inputs


class RoutingStart(StrEnum):
    """Where dynamic routing begins: how much of each event goes to each interest before the first round."""

    NORMAL = "normal"  # drawn at random
    ZEROS = "zeros"


@dataclass(frozen=True, kw_only=True)
class CapsuleConfig:
    """capsule_config: the events of a history, gathered into interests by dynamic routing."""

    max_k: int  # interests
    max_seq_len: int  # events that are read, from the start of the history
    high_dim: int  # width of an interest
    num_iters: int = 3
    routing_logits_scale: float = 20.0
    routing_logits_stddev: float = 1.0
    squash_pow: float = 1.0
    const_caps_num: bool = False  # every user has max_k interests, however short the history
    routing_start: RoutingStart = RoutingStart.NORMAL


@dataclass(frozen=True, kw_only=True)
class MindUserConfig:
    """MIND's user tower: interests out of the history, each joined with the user's own features."""

    input: str  # group name
    history_input: str  # group name
    user_mlp: MlpConfig  # the last layer is without norm and activation
    history_mlp: MlpConfig | None  # hist_seq_mlp; the last layer is without norm and activation
    capsules: CapsuleConfig
    concat_mlp: MlpConfig | None  # None: user and interest side by side, as they are


@dataclass(frozen=True, kw_only=True)
class MindConfig(FamilyConfig):
    """mind: several vectors per user, and perceptrons over one group of the item."""

    user: MindUserConfig
    item: DeepTowerConfig
    output_dim: int  # 0: no projection
    similarity: Similarity
    family: str = "mind"
    towers: ClassVar[tuple[TowerName, ...]] = TWO_TOWERS
    tables_are_shared: ClassVar[bool] = False

    def reads(self, tower: TowerName, group: str) -> bool:
        """The groups that it names."""
        user = (self.user.input, self.user.history_input)
        return group in (self.item.inputs if tower is TowerName.ITEM else user)


MatchConfig = DssmConfig | MindConfig

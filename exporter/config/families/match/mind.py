"""mind (Li et al. 2019, arXiv:1904.08030): several vectors per user, routed out of the history."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from exporter.config.blocks.match_towers import (
    MatchConfig,
    check_equal_widths,
    read_deep_tower,
    read_output_dim,
    read_similarity,
    read_tower_mlp,
)
from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.families.family_spec import FamilySpec
from exporter.config.features.group_checks import GroupChecks
from exporter.config.pb.model_pb2 import ModelConfig
from exporter.config.pb.module_pb2 import MLP, B2ICapsule
from exporter.config.pb.tower_pb2 import MINDUserTower
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.spec import TowerName

WHERE = "model_config.mind"


class RoutingStart(StrEnum):
    """Initial routing logits: the share of each event that goes to each interest before the first round."""

    NORMAL = "normal"  # drawn from a normal distribution
    ZEROS = "zeros"


@dataclass(frozen=True, kw_only=True)
class CapsuleConfig:
    """capsule_config: dynamic routing of a history's events into interests."""

    max_k: int  # largest number of interests
    max_seq_len: int  # events that are read, counted from the start of the history
    high_dim: int  # width of an interest
    num_iters: int = 3
    routing_logits_scale: float = 20.0
    routing_logits_stddev: float = 1.0
    squash_pow: float = 1.0
    const_caps_num: bool = False  # every user has max_k interests, however short the history
    routing_start: RoutingStart = RoutingStart.NORMAL


@dataclass(frozen=True, kw_only=True)
class MindUserConfig:
    """User tower of mind: interests out of the history, each concatenated with the user's own features."""

    input: str  # group name
    history_input: str  # group name
    user_mlp: MlpConfig  # the last layer has no norm and no activation
    history_mlp: MlpConfig | None  # hist_seq_mlp; the last layer has no norm and no activation
    capsules: CapsuleConfig
    concat_mlp: MlpConfig | None  # None: the concatenated vectors are not transformed


@dataclass(frozen=True, kw_only=True)
class MindConfig(MatchConfig):
    """mind: several vectors per user, and an MLP over one group of the item."""

    user: MindUserConfig
    family: str = "mind"

    def reads(self, tower: TowerName, group: str) -> bool:
        """Return whether the tower names the group as an input."""
        user = (self.user.input, self.user.history_input)
        return group in (self.item.inputs if tower is TowerName.ITEM else user)


def read_mind(message: ModelConfig) -> MindConfig:
    model = message.mind
    return MindConfig(
        user=_read_user(model.user_tower, f"{WHERE}.user_tower"),
        item=read_deep_tower(model.item_tower, f"{WHERE}.item_tower"),
        output_dim=read_output_dim(model),
        similarity=read_similarity(model),
    )


def check_mind(model: MindConfig, features: Sequence[Feature], groups: Sequence[FeatureGroup]) -> None:
    """Refuse a config whose towers lack a group of the right kind, or differ in width with output_dim 0."""
    checks = GroupChecks(features, groups, WHERE)
    for name in model.item.inputs:
        checks.require_group(name, "the item", GroupKind.DEEP)
    checks.require_group(model.user.input, "the user", GroupKind.DEEP)
    _check_history(model.user.history_input, checks)
    item, user = model.item, model.user
    check_equal_widths(
        model,
        user=user.concat_mlp.width if user.concat_mlp else user.user_mlp.width + user.capsules.high_dim,
        item=item.mlp.width if item.mlp else sum(checks.vector_width(name) for name in item.inputs),
    )


def _check_history(name: str, checks: GroupChecks) -> None:
    checks.require_group(name, "the user's history", GroupKind.SEQUENCE)
    if not any(feature.is_sequence for feature in checks.members(name)):
        raise_invalid(
            f"feature_groups: {name}",
            "it is the user's history, and none of its features is a sequence",
            hint="name features of a sequence_feature",
        )


def _read_user(message: MINDUserTower, where: str) -> MindUserConfig:
    """Read the user tower; user_seq_combine is accepted and ignored, as in TorchEasyRec."""
    if not message.user_mlp.hidden_units:
        raise_invalid(f"{where}.user_mlp", "hidden_units are empty", hint="list the width of every layer")
    return MindUserConfig(
        input=message.input,
        history_input=message.history_input,
        user_mlp=_read_projecting_mlp(message.user_mlp, f"{where}.user_mlp", bias=True),
        history_mlp=_read_projecting_mlp(message.hist_seq_mlp, f"{where}.hist_seq_mlp", bias=False)
        if message.hist_seq_mlp.hidden_units
        else None,
        capsules=_read_capsules(message.capsule_config, f"{where}.capsule_config"),
        concat_mlp=read_tower_mlp(message.concat_mlp, f"{where}.concat_mlp"),
    )


def _read_projecting_mlp(message: MLP, where: str, *, bias: bool) -> MlpConfig:
    """Read an mlp whose last layer projects: TorchEasyRec ignores its `bias` and `use_ln`."""
    read = MLP()
    read.CopyFrom(message)
    read.bias, read.use_ln = bias, False
    return read_mlp(read, where)


def _read_capsules(message: B2ICapsule, where: str) -> CapsuleConfig:
    for name in ("max_k", "max_seq_len", "high_dim", "num_iters"):
        if getattr(message, name) == 0:
            raise_invalid(where, f"{name} is 0", hint="set it above 0")
    if message.routing_init_method not in set(RoutingStart):
        raise_invalid(
            where,
            f"routing_init_method is {message.routing_init_method!r}",
            hint=f"write {_quoted(RoutingStart)}",
        )
    if message.routing_logits_scale <= 0 and not message.const_caps_num:
        raise_invalid(
            where,
            f"routing_logits_scale is {message.routing_logits_scale:g}, which routes events to interests "
            "that a short history does not have",
            hint="set it above 0, or const_caps_num: true",
        )
    return CapsuleConfig(
        max_k=message.max_k,
        max_seq_len=message.max_seq_len,
        high_dim=message.high_dim,
        num_iters=message.num_iters,
        routing_logits_scale=message.routing_logits_scale,
        routing_logits_stddev=message.routing_logits_stddev,
        squash_pow=message.squash_pow,
        const_caps_num=message.const_caps_num,
        routing_start=RoutingStart(message.routing_init_method),
    )


def _quoted(words: Iterable[str]) -> str:
    return " or ".join(f'"{word}"' for word in words)


FAMILY = FamilySpec(message="mind", kind="match", read=read_mind, check=check_mind)

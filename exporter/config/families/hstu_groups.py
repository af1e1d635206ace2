"""The feature groups of the HSTU families, and what each must hold."""

from collections.abc import Sequence

from exporter.config.families.hstu import CONTEXTUAL, HstuConfig
from exporter.config.refusals import invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig


class GroupInputs:
    """A config's groups by name, with the checks that the families share."""

    def __init__(self, features: Sequence[Feature], groups: Sequence[FeatureGroup], where: str) -> None:
        """`where` is the model's place in the config."""
        self._features = {feature.name: feature for feature in features}
        self._groups = {group.name: group for group in groups}
        self._where = where

    def refuse_padding(self) -> None:
        """No HSTU model pads its sequences, so a group that asks for it would be read by nothing."""
        for group in self._groups.values():
            if group.encoders:
                raise UnsupportedConfig(
                    f"group {group.name} has sequence encoders, and HSTU models are exported without them",
                    hint="train without sequence_groups and sequence_encoders",
                    where=f"feature_groups: {group.name}",
                )
            padded = [feature.name for feature in self.members(group.name) if feature.is_sequence]
            if group.kind is GroupKind.SEQUENCE and group.name != CONTEXTUAL and padded:
                raise UnsupportedConfig(
                    f"group {group.name} pads {', '.join(padded)}, and no HSTU model reads padded sequences",
                    hint="use group_type JAGGED_SEQUENCE, or delete the group",
                    where=f"feature_groups: {group.name}",
                )

    def has(self, name: str) -> bool:
        return name in self._groups

    def group(self, name: str) -> FeatureGroup:
        return self._groups[name]

    def members(self, name: str) -> list[Feature]:
        return [self._features[feature] for feature in self._groups[name].features]

    def width(self, name: str) -> int:
        """The width of the group's vector."""
        return sum(feature.width for feature in self.members(name))

    def require(self, name: str, purpose: str, kind: GroupKind) -> None:
        if not self.has(name):
            raise InvalidPipelineConfig(
                f"{self._where} needs feature group {name}, for {purpose}, and there is none",
                hint=f"add the group, of group_type {kind}",
                where="model_config.feature_groups",
            )
        if self.group(name).kind is not kind:
            invalid(
                f"feature_groups: {name}",
                f"group_type is {self.group(name).kind}, but {purpose} needs {kind}",
                hint=f"use group_type {kind}",
            )

    def jagged(self, name: str, purpose: str) -> None:
        """The group holds one or more sequences, element by element."""
        self.require(name, purpose, GroupKind.JAGGED_SEQUENCE)
        for feature in self.members(name):
            if not feature.is_sequence:
                invalid(
                    f"feature_groups: {name}",
                    f"{feature.name} is one value per row, but {purpose} is a sequence",
                    hint="write the feature inside a sequence_feature",
                )

    def numbers(self, name: str, purpose: str, kind: GroupKind) -> None:
        """The group holds exactly one plain number per row or per element."""
        self.require(name, purpose, kind)
        members = self.members(name)
        fits = len(members) == 1 and not members[0].is_sparse and members[0].value_dim == 1
        if not fits or members[0].is_sequence != (kind is GroupKind.JAGGED_SEQUENCE):
            invalid(
                f"feature_groups: {name}",
                f"{purpose} needs one plain number per {'row' if kind is GroupKind.DEEP else 'event'}",
                hint="name exactly one raw_feature without boundaries, value_dim 1",
            )

    def history(self, hstu: HstuConfig) -> None:
        """The groups of the user's events: what they were, when, and what was done."""
        name, encoder = hstu.history, hstu.preprocessor.action_encoder
        self.jagged(name, "the user's history")
        self.numbers(f"{name}_timestamp", "the times of the history", GroupKind.JAGGED_SEQUENCE)
        if encoder is not None:
            self.numbers(f"{name}_action", "action_encoder", GroupKind.JAGGED_SEQUENCE)
        if encoder is not None and encoder.watchtime_thresholds:
            self.numbers(f"{name}_watchtime", "watchtime_to_action_thresholds", GroupKind.JAGGED_SEQUENCE)

    def contextual(self, hstu: HstuConfig, *, concatenated: bool = False) -> None:
        """The group `contextual`, if there is one: one vector per row and feature, in a position each."""
        elements = 1 if concatenated else len(self.members(CONTEXTUAL)) if self.has(CONTEXTUAL) else 0
        self._check_elements(elements, hstu)
        if not self.has(CONTEXTUAL):
            self._refuse_lone_mlps(hstu)
            return
        where = f"feature_groups: {CONTEXTUAL}"
        kind = self.group(CONTEXTUAL).kind
        if kind is GroupKind.JAGGED_SEQUENCE:
            invalid(where, f"group_type is {kind}", hint="use DEEP or SEQUENCE: one vector per feature")
        if kind is GroupKind.SEQUENCE:
            self._refuse_sequences(where)
        widths = {feature.name: feature.width for feature in self.members(CONTEXTUAL)}
        if len(set(widths.values())) > 1 and not concatenated:
            shown = ", ".join(f"{name} {width}" for name, width in widths.items())
            hint = "give all of them one embedding_dim"
            invalid(where, f"its features differ in width: {shown}", hint=hint)

    def _check_elements(self, elements: int, hstu: HstuConfig) -> None:
        """What the context puts in front of a row has positions, and is as long as truncation believes."""
        positions = hstu.positional_encoder
        if positions is not None and positions.num_position_buckets < elements:
            invalid(
                f"feature_groups: {CONTEXTUAL}",
                f"{elements} features do not fit into num_position_buckets {positions.num_position_buckets}",
                hint="train with as many position buckets as features at least",
            )
        if hstu.attn_truncation_tail_len and hstu.stu.contextual_seq_len > elements:
            invalid(
                self._where,
                f"truncation would keep contextual_seq_len {hstu.stu.contextual_seq_len} elements of "
                f"context, and there are {elements}",
                hint="leave contextual_seq_len out, or truncate nothing",
            )

    def _refuse_lone_mlps(self, hstu: HstuConfig) -> None:
        mlps = [hstu.preprocessor.action_mlp, getattr(hstu.preprocessor, "content_mlp", None)]
        if any(mlp is not None and mlp.parameterized for mlp in mlps):
            invalid(
                self._where,
                "parameterized_mlp needs a group named contextual",
                hint="add the group it was trained with",
            )

    def _refuse_sequences(self, where: str) -> None:
        for feature in self.members(CONTEXTUAL):
            if feature.is_sequence:
                invalid(
                    where,
                    f"{feature.name} is a sequence",
                    hint="contextual features have one vector per row",
                )

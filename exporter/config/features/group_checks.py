"""Checks that a model's feature groups are there, and of the kind and content that the model needs."""

from collections.abc import Sequence

from exporter.config.features.widths import feature_widths
from exporter.config.refusals import raise_invalid
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import InvalidPipelineConfig


class GroupChecks:
    """A config's groups by name, and the checks that several families make of them.

    The checks raise InvalidPipelineConfig, naming the group and what the model needs it for.
    """

    def __init__(self, features: Sequence[Feature], groups: Sequence[FeatureGroup], where: str) -> None:
        """Take all features and groups of a config; `where` is the model's place in it, for errors."""
        self._features = {feature.name: feature for feature in features}
        self._groups = {group.name: group for group in groups}
        self.where = where

    @property
    def groups(self) -> tuple[FeatureGroup, ...]:
        return tuple(self._groups.values())

    def has_group(self, name: str) -> bool:
        return name in self._groups

    def group(self, name: str) -> FeatureGroup:
        return self._groups[name]

    def members(self, name: str) -> list[Feature]:
        return [self._features[feature] for feature in self._groups[name].features]

    def features_width(self, name: str) -> int:
        """Return the width of the group's own features together, in values."""
        group = self._groups[name]
        return sum(group.width_of(feature) for feature in self.members(name))

    def vector_widths(self, name: str) -> tuple[int, ...]:
        """Return the widths of the parts of a row's vector: of each feature, and of each encoder's output."""
        return feature_widths(self._groups[name], self._features)

    def vector_width(self, name: str) -> int:
        """Return the width of a row's vector: the group's features and its sequence encoders' outputs."""
        return sum(self.vector_widths(name))

    def require_group(self, name: str, purpose: str, kind: GroupKind) -> None:
        """Refuse a config without the group, or with one of another kind; WIDE does where DEEP is needed."""
        if not self.has_group(name):
            raise InvalidPipelineConfig(
                f"{self.where} needs feature group {name}, for {purpose}, and there is none",
                hint=f"add the group, of group_type {kind}",
                where=self.where,
            )
        found = self.group(name).kind
        if found is not kind and not (found.is_row_vector and kind.is_row_vector):
            raise_invalid(
                f"feature_groups: {name}",
                f"group_type is {found}, but {purpose} needs {kind}",
                hint=f"use group_type {kind}",
            )

    def require_equal_widths(self, name: str, purpose: str) -> int:
        """Return the width of every part of a group's vector; refuse a group whose parts differ."""
        widths = self.vector_widths(name)
        if len(set(widths)) > 1:
            names = [*self.group(name).features, *("an encoder" for _ in self.group(name).encoders)]
            firsts = {width: names[widths.index(width)] for width in widths}
            shown = ", ".join(f"{part} {width}" for width, part in firsts.items())
            raise_invalid(
                f"feature_groups: {name}",
                f"its features differ in width ({shown}), and {purpose}",
                hint="give all of them one embedding_dim, or value_dim where they are plain numbers",
            )
        return widths[0]

    def require_sequences(self, name: str, purpose: str) -> None:
        """Refuse a jagged group with a feature that is not a sequence."""
        self.require_group(name, purpose, GroupKind.JAGGED_SEQUENCE)
        for feature in self.members(name):
            if not feature.is_sequence:
                raise_invalid(
                    f"feature_groups: {name}",
                    f"{feature.name} is one value per row, but {purpose} is a sequence",
                    hint="write the feature inside a sequence_feature",
                )

    def require_number(self, name: str, purpose: str, kind: GroupKind) -> None:
        """Refuse a group that does not hold exactly one plain number per row, or per element if jagged."""
        self.require_group(name, purpose, kind)
        members = self.members(name)
        fits = len(members) == 1 and not members[0].is_sparse and members[0].value_dim == 1
        if not fits or members[0].is_sequence != (kind is GroupKind.JAGGED_SEQUENCE):
            raise_invalid(
                f"feature_groups: {name}",
                f"{purpose} needs one plain number per {'row' if kind is GroupKind.DEEP else 'event'}",
                hint="name exactly one raw_feature without boundaries, value_dim 1",
            )

"""Widths of the tensors of embedded groups, in values. No torch."""

from collections.abc import Mapping, Sequence

from exporter.config.blocks.sequence_encoders import encoder_width
from exporter.config.schema import Feature, FeatureGroup, GroupKind, PipelineConfig


def group_width(pipeline: PipelineConfig, key: str) -> int:
    """Return the width of an embedded group by its key: `deep`, or `click.query` and `click.sequence`.

    The width of a DEEP group includes the outputs of its sequence encoders.

    Raises:
        InvalidPipelineConfig: an encoder cannot read its sequence group.
    """
    name, _, part = key.partition(".")
    features = {feature.name: feature for feature in pipeline.features}
    kinds = (GroupKind.SEQUENCE, GroupKind.JAGGED_SEQUENCE) if part else (GroupKind.DEEP,)
    group = next(g for g in pipeline.embedded_groups if g.name == name and g.kind in kinds)
    if not part:
        return features_width(group, features) + sum(encoder_widths(group, features))
    query, sequence = sequence_widths(group, features)
    return query if part == "query" else sequence


def features_width(group: FeatureGroup, features: Mapping[str, Feature]) -> int:
    """Return the sum of the widths of the group's own features."""
    return _width([features[name] for name in group.features])


def sequence_widths(group: FeatureGroup, features: Mapping[str, Feature]) -> tuple[int, int]:
    """Return the widths of a group's query and of its sequence's elements; 0 where it has none."""
    members = [features[name] for name in group.features]
    return _width([f for f in members if not f.is_sequence]), _width([f for f in members if f.is_sequence])


def encoder_widths(group: FeatureGroup, features: Mapping[str, Feature]) -> tuple[int, ...]:
    """Return the width of the output of each encoder of a DEEP group."""
    widths = {inner.name: sequence_widths(inner, features) for inner in group.sequence_groups}
    return tuple(
        encoder_width(encoder, query_width=widths[encoder.group][0], sequence_width=widths[encoder.group][1])
        for encoder in group.encoders
    )


def _width(features: Sequence[Feature]) -> int:
    return sum(feature.width for feature in features)

"""Widths of the tensors of embedded groups, in values. No torch."""

from collections.abc import Mapping

from exporter.config.blocks.sequence_encoders import encoder_width
from exporter.config.schema import Feature, FeatureGroup, PipelineConfig


def group_width(pipeline: PipelineConfig, key: str) -> int:
    """Return the width of an embedded group by its key: `deep`, or `click.query` and `click.sequence`.

    The width of one vector per row includes the outputs of the group's sequence encoders.

    Raises:
        InvalidPipelineConfig: an encoder cannot read its sequence group.
    """
    name, _, part = key.partition(".")
    features = {feature.name: feature for feature in pipeline.features}
    group = next(g for g in pipeline.embedded_groups if g.name == name and g.kind.is_row_vector == (not part))
    if not part:
        return sum(feature_widths(group, features))
    query, sequence = sequence_widths(group, features)
    return query if part == "query" else sequence


def feature_widths(group: FeatureGroup, features: Mapping[str, Feature]) -> tuple[int, ...]:
    """Return the width of each feature in the group's vector, then that of each encoder's output."""
    own = tuple(group.width_of(features[name]) for name in group.features)
    return own + encoder_widths(group, features)


def sequence_widths(group: FeatureGroup, features: Mapping[str, Feature]) -> tuple[int, int]:
    """Return the widths of a group's query and of its sequence's elements; 0 where it has none."""
    members = [features[name] for name in group.features]
    query = sum(group.width_of(feature) for feature in members if not feature.is_sequence)
    return query, sum(group.width_of(feature) for feature in members if feature.is_sequence)


def encoder_widths(group: FeatureGroup, features: Mapping[str, Feature]) -> tuple[int, ...]:
    """Return the width of the output of each encoder of a DEEP group."""
    widths = {inner.name: sequence_widths(inner, features) for inner in group.sequence_groups}
    return tuple(
        encoder_width(encoder, query_width=widths[encoder.group][0], sequence_width=widths[encoder.group][1])
        for encoder in group.encoders
    )

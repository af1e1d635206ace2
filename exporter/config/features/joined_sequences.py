"""Standalone sequence features that feature groups join element by element, and so make one sequence.

A standalone feature (`sequence_id_feature`, `sequence_raw_feature`) is a sequence of its own: nothing in the
config says that its rows are as long as another's. A JAGGED_SEQUENCE group that lists several side by side
does say so, and so does a model that adds up or compares the elements of several groups. Then they are one
sequence from here on: one dim in the plan, equal lengths demanded of every row and by every package.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.config.schema import Sequence as Parent
from exporter.errors import UnsupportedConfig

_Joined = tuple[FeatureGroup, ...]


def join_sequences(
    features: Sequence[Feature], groups: Sequence[FeatureGroup], *, by_model: Iterable[Sequence[str]] = ()
) -> tuple[Feature, ...]:
    """The features, with one sequence for all that are joined.

    Each of `by_model` names groups whose elements the model joins with each other; groups that the config
    lacks, and groups that are not jagged, join nothing.

    Raises:
        UnsupportedConfig: two parents would have to be one.
    """
    by_name = {feature.name: feature for feature in features}
    jagged = {group.name: group for group in groups if group.kind is GroupKind.JAGGED_SEQUENCE}
    together = [tuple(jagged[name] for name in names if name in jagged) for names in by_model]
    joined: dict[str, Parent] = {}
    for cluster in _clusters([*together, *((group,) for group in jagged.values())], by_name):
        names = _sequences(cluster, by_name)
        if len(names) > 1:
            joined |= dict.fromkeys(names, _joined(_members(cluster, by_name), cluster))
    return tuple(_with_parent(feature, joined) for feature in features)


def _clusters(joined: Iterable[_Joined], by_name: Mapping[str, Feature]) -> list[_Joined]:
    """Sets of groups, merged where they have a sequence in common; groups in the order they were given."""
    clusters: list[_Joined] = []
    for groups in joined:
        names = _sequences(groups, by_name)
        meeting = [cluster for cluster in clusters if names & _sequences(cluster, by_name)]
        merged = [group for cluster in (*meeting, groups) for group in cluster]
        clusters = [cluster for cluster in clusters if cluster not in meeting]
        clusters.append(tuple(dict.fromkeys(merged)))
    return clusters


def _sequences(groups: _Joined, by_name: Mapping[str, Feature]) -> set[str]:
    return {feature.sequence.name for feature in _members(groups, by_name) if feature.sequence}


def _members(groups: _Joined, by_name: Mapping[str, Feature]) -> list[Feature]:
    names = dict.fromkeys(name for group in groups for name in group.features)
    return [by_name[name] for name in names if by_name[name].is_sequence]


def _joined(members: Sequence[Feature], groups: _Joined) -> Parent:
    """The sequence that the standalone members become: the parent of the others, or the first of them."""
    parents = {f.sequence.name: f.sequence for f in members if f.grouped and f.sequence}
    if len(parents) > 1:
        named = " and ".join(
            f"{parent} ({', '.join(f.name for f in members if f.sequence and f.sequence.name == parent)})"
            for parent in parents
        )
        raise UnsupportedConfig(
            f"feature groups {', '.join(group.name for group in groups)} are joined element by element, "
            f"but hold features of different sequences: {named}",
            hint="write these features in one sequence_feature; or write them standalone, "
            "as sequence_id_feature and sequence_raw_feature, and every row is held to equal lengths",
            where=f"feature_groups: {groups[0].name}",
        )
    first = next(iter(parents.values()), members[0].sequence)
    assert first is not None
    standalone = {feature.name for feature in members if not feature.grouped}
    declared = [f.sequence.length for f in members if f.sequence and f.sequence.length]
    return replace(
        first,
        length=min(declared, default=0),  # rows are equally long, so the tightest holds for all
        joined_by=tuple(group.name for group in groups if standalone & set(group.features)),
    )


def _with_parent(feature: Feature, joined: Mapping[str, Parent]) -> Feature:
    if feature.sequence is None or feature.sequence.name not in joined:
        return feature
    parent = joined[feature.sequence.name]
    return replace(feature, sequence=replace(parent, delim=feature.sequence.delim))

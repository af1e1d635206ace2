"""Join standalone sequence features that groups or the model combine element by element into one sequence.

A standalone feature (`sequence_id_feature`, `sequence_raw_feature`) is a sequence of its own: nothing in the
config says that its rows are as long as another's. A JAGGED_SEQUENCE group that lists several of them does
say so, and so does a model that adds up or compares the elements of several groups. They are one sequence
from here on: one dim in the plan, and packages demand equal lengths of every row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.config.schema import Sequence as Parent
from exporter.errors import UnsupportedConfig
from exporter.redaction import name_first

_GroupSet = tuple[FeatureGroup, ...]


def join_sequences(
    features: Sequence[Feature], groups: Sequence[FeatureGroup], *, by_model: Iterable[Sequence[str]] = ()
) -> tuple[Feature, ...]:
    """Return the features, with one common sequence for all that are joined.

    Every item of `by_model` names groups whose elements the model joins with each other; groups that the
    config lacks, and groups that are not jagged, are ignored.

    Raises:
        UnsupportedConfig: features of two different sequence_features would have to be one sequence.
    """
    by_name = {feature.name: feature for feature in features}
    jagged = {group.name: group for group in groups if group.kind is GroupKind.JAGGED_SEQUENCE}
    together = [tuple(jagged[name] for name in names if name in jagged) for names in by_model]
    joined: dict[str, Parent] = {}
    for cluster in _clusters([*together, *((group,) for group in jagged.values())], by_name):
        names = _sequences(cluster, by_name)
        if len(names) > 1:
            joined |= dict.fromkeys(names, _join_parents(_members(cluster, by_name), cluster))
    return tuple(_with_parent(feature, joined) for feature in features)


def _clusters(joined: Iterable[_GroupSet], by_name: Mapping[str, Feature]) -> list[_GroupSet]:
    """Merge sets of groups that have a sequence in common; groups keep the order in which they were given."""
    clusters: list[_GroupSet] = []
    for groups in joined:
        names = _sequences(groups, by_name)
        meeting = [cluster for cluster in clusters if names & _sequences(cluster, by_name)]
        merged = [group for cluster in (*meeting, groups) for group in cluster]
        clusters = [cluster for cluster in clusters if cluster not in meeting]
        clusters.append(tuple(dict.fromkeys(merged)))
    return clusters


def _sequences(groups: _GroupSet, by_name: Mapping[str, Feature]) -> set[str]:
    return {feature.sequence.name for feature in _members(groups, by_name) if feature.sequence}


def _members(groups: _GroupSet, by_name: Mapping[str, Feature]) -> list[Feature]:
    names = dict.fromkeys(name for group in groups for name in group.features)
    return [by_name[name] for name in names if by_name[name].is_sequence]


def _join_parents(members: Sequence[Feature], groups: _GroupSet) -> Parent:
    """Return the common sequence: that of the members in a sequence_feature, or the first standalone one."""
    parents = {f.sequence.name: f.sequence for f in members if f.grouped and f.sequence}
    if len(parents) > 1:
        named = " and ".join(
            f"{parent} ({', '.join(f.name for f in members if f.sequence and f.sequence.name == parent)})"
            for parent in parents
        )
        raise UnsupportedConfig(
            f"feature groups {name_first([group.name for group in groups])} are joined element by element, "
            f"but hold features of different sequences: {named}",
            hint="write these features in one sequence_feature; or write them standalone, "
            "as sequence_id_feature and sequence_raw_feature, and every row must then have equal lengths",
            where=f"feature_groups: {groups[0].name}",
        )
    first = next(iter(parents.values()), members[0].sequence)
    assert first is not None
    standalone = {feature.name for feature in members if not feature.grouped}
    declared = [f.sequence.length for f in members if f.sequence and f.sequence.length]
    return replace(
        first,
        length=min(declared, default=0),  # rows are equally long, so the smallest limit holds for all
        joined_by=tuple(group.name for group in groups if standalone & set(group.features)),
    )


def _with_parent(feature: Feature, joined: Mapping[str, Parent]) -> Feature:
    if feature.sequence is None or feature.sequence.name not in joined:
        return feature
    parent = joined[feature.sequence.name]
    return replace(feature, sequence=replace(parent, delim=feature.sequence.delim))

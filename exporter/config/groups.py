"""Feature-group messages to groups, checked against the features they name."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import NoReturn

from exporter.config.pb.model_pb2 import FeatureGroupConfig, FeatureGroupType, ModelConfig
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig


def read_groups(model: ModelConfig, features: Sequence[Feature]) -> tuple[FeatureGroup, ...]:
    """The groups in config order.

    Raises:
        UnsupportedConfig: a kind of group, or a sequence encoder, that Slipway does not build.
        InvalidPipelineConfig: a name used twice, or that no feature has.
    """
    by_name = {feature.name: feature for feature in features}
    groups = tuple(_read(message, by_name) for message in model.feature_groups)
    for position, group in enumerate(groups):
        if group.name in {other.name for other in groups[:position]}:
            _invalid(group.name, "another group has the same name", hint="rename one of the two")
    _check_bag_pooling(groups, by_name)
    return groups


def _read(message: FeatureGroupConfig, features: Mapping[str, Feature]) -> FeatureGroup:
    name = message.group_name
    kind = FeatureGroupType.Name(message.group_type)
    if kind not in set(GroupKind):
        _refuse(name, f"group_type {kind} is not supported", hint=f"supported are {', '.join(GroupKind)}")
    for encoder in message.sequence_encoders:
        _refuse(
            name,
            f"sequence encoder {encoder.WhichOneof('seq_module')} is not supported",
            hint="supported are groups without sequence_groups and sequence_encoders",
        )
    if message.sequence_groups:
        _refuse(name, "sequence_groups are not supported", hint="give the sequence a group of its own")
    if message.embedding_name_suffix:
        _refuse(
            name,
            "embedding_name_suffix is not supported",
            hint="give the features embedding_names of their own",
        )
    if not message.feature_names:
        _invalid(name, "it names no feature", hint="add feature_names, or delete the group")
    for position, feature in enumerate(message.feature_names):
        _check_member(name, feature, features, kind)
        if feature in message.feature_names[:position]:
            _invalid(name, f"it names {feature} twice", hint="delete one of the two")
    group = FeatureGroup(name=name, kind=GroupKind(kind), features=tuple(message.feature_names))
    if group.kind is not GroupKind.DEEP:  # a DEEP group pools each of its sequences by itself
        sequences = [features[feature] for feature in group.features if features[feature].is_sequence]
        _check_parents(group, sequences)
        _check_values(group, sequences)
    return group


def _check_member(group: str, name: str, features: Mapping[str, Feature], kind: str) -> None:
    if name not in features:
        near = get_close_matches(name, features, n=3) or sorted(features)[:5]
        _invalid(group, f"no feature is named {name}", hint=f"near it are {', '.join(near)}")
    feature = features[name]
    if feature.weighted:
        _refuse(
            group,
            f"{name} is weighted, and no model that Slipway exports reads the weights",
            hint="train the feature without `weighted`, or leave it out of the model's groups",
        )
    if kind == GroupKind.DEEP and feature.is_sequence and feature.is_multivalued:
        _refuse(
            group,
            f"{name} is a sequence of several values per event, and no model that Slipway exports pools them",
            hint="set value_dim: 1, or leave the feature out of the model's groups",
        )
    if kind == GroupKind.DEEP and feature.is_sequence and not feature.is_sparse:
        _invalid(
            group,
            f"{name} is a sequence of plain numbers, which a DEEP group has no vector for",
            hint="use group_type JAGGED_SEQUENCE",
        )


def _check_parents(group: FeatureGroup, sequences: Sequence[Feature]) -> None:
    """The group's sequences are of one parent, or all standalone.

    In a padded group standalone features may also stand beside a parent's: each is padded, or cut, to the
    longest row of the first, so that nothing is assumed of their lengths.
    """
    parents: dict[str, list[str]] = {}
    for feature in sequences:
        if feature.grouped and feature.sequence:
            parents.setdefault(f"sequence {feature.sequence.name}", []).append(feature.name)
    standalone = [feature.name for feature in sequences if not feature.grouped]
    if parents and standalone and group.kind is GroupKind.JAGGED_SEQUENCE:
        parents["no sequence_feature"] = standalone
    if len(parents) > 1:
        named = " and ".join(f"{', '.join(names)} of {parent}" for parent, names in parents.items())
        _refuse(
            group.name,
            f"it mixes {named}, whose rows need not be equally long",
            hint="give every sequence a group of its own, or write these features in one sequence_feature",
        )


def _check_values(group: FeatureGroup, sequences: Sequence[Feature]) -> None:
    """Every event of the group's sequences has one value per feature."""
    several = [feature for feature in sequences if feature.is_multivalued]
    if not several:
        return
    parents = ", ".join(dict.fromkeys(f.sequence.name for f in several if f.sequence))
    single = [feature.name for feature in sequences if not feature.is_multivalued]
    mixed = f" beside {', '.join(single)}, which have one" if single else ""
    _refuse(
        group.name,
        f"{', '.join(feature.name for feature in several)} of sequence {parents} may have several values per "
        f"event{mixed}, and no model that Slipway exports reads such a sequence",
        hint="set value_dim: 1, or leave the feature out of the model's groups",
    )


def _check_bag_pooling(groups: Sequence[FeatureGroup], features: Mapping[str, Feature]) -> None:
    """One table of a DEEP group is pooled in one way."""
    first: dict[str, Feature] = {}
    for group in groups:
        for feature in (features[name] for name in group.features if group.kind is GroupKind.DEEP):
            if feature.table is None:
                continue
            other = first.setdefault(feature.table.name, feature)
            if other.pooling is not feature.pooling:
                _invalid(
                    group.name,
                    f"{other.name} and {feature.name} share table {feature.table.name}, but one is pooled "
                    f"by {other.pooling} and the other by {feature.pooling}",
                    hint="give both the same pooling",
                )


def _refuse(group: str, problem: str, *, hint: str) -> NoReturn:
    raise UnsupportedConfig(f"feature group {group}: {problem}", hint=hint, where=f"feature_groups: {group}")


def _invalid(group: str, problem: str, *, hint: str) -> NoReturn:
    raise InvalidPipelineConfig(
        f"feature group {group}: {problem}", hint=hint, where=f"feature_groups: {group}"
    )

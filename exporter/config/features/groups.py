"""Read the feature groups of a config, and check them against the features that they name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import NoReturn

from exporter.config.blocks.sequence_encoders import SequenceEncoderConfig, read_sequence_encoder
from exporter.config.features.widths import encoder_widths
from exporter.config.pb.model_pb2 import FeatureGroupConfig, FeatureGroupType, ModelConfig, SeqGroupConfig
from exporter.config.refusals import check_name
from exporter.config.schema import Feature, FeatureGroup, GroupKind
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from exporter.redaction import name_first

_USUAL_WIDE_DIM = 4  # wide_embedding_dim of models that cannot set it


def read_groups(model: ModelConfig, features: Sequence[Feature]) -> tuple[FeatureGroup, ...]:
    """Read the groups, in config order.

    Raises:
        UnsupportedConfig: a kind of group, or a member of one, that Slipway does not build.
        InvalidPipelineConfig: a name used twice, or that no feature has; a sequence group without an encoder.
    """
    by_name = {feature.name: feature for feature in features}
    wide_dim = _wide_dim(model)
    groups = tuple(_read(message, by_name, wide_dim) for message in model.feature_groups)
    taken: set[str] = set()
    for group in (inner for outer in groups for inner in (outer, *outer.sequence_groups)):
        if group.name in taken and not _is_its_own_sequence(group, groups):
            _invalid(group.name, "another group has the same name", hint="rename one of the two")
        taken.add(group.name)
    return groups


def _wide_dim(model: ModelConfig) -> int:
    """Return the width of tables of WIDE groups, which some models set; 0 stands for the usual one."""
    family = getattr(model, model.WhichOneof("model") or "", None)
    return getattr(family, "wide_embedding_dim", 0) or _USUAL_WIDE_DIM


def _read(message: FeatureGroupConfig, features: Mapping[str, Feature], wide_dim: int) -> FeatureGroup:
    name = message.group_name
    check_name(name, f"feature_groups: {name}")
    kind = FeatureGroupType.Name(message.group_type)
    if kind not in set(GroupKind):
        _refuse(name, f"group_type {kind} is not supported", hint=f"supported are {', '.join(GroupKind)}")
    sequence_groups = _sequence_groups(message, features)
    if not message.feature_names and not sequence_groups:
        _invalid(name, "it names no feature", hint="add feature_names, or delete the group")
    group = FeatureGroup(
        name=name,
        kind=GroupKind(kind),
        features=tuple(message.feature_names),
        table_suffix=message.embedding_name_suffix,
        wide_dim=wide_dim if kind == GroupKind.WIDE else 0,
        sequence_groups=sequence_groups,
        encoders=_encoders(message, sequence_groups),
    )
    _check_members(group, features)
    encoder_widths(group, features)  # raises if an encoder cannot read a group of these widths
    return group


def _sequence_groups(
    message: FeatureGroupConfig, features: Mapping[str, Feature]
) -> tuple[FeatureGroup, ...]:
    """Read the padded groups inside a DEEP group; a single one takes its name unless it has its own."""
    if message.group_type != FeatureGroupType.DEEP and (message.sequence_groups or message.sequence_encoders):
        _invalid(
            message.group_name,
            "it has sequence_groups or sequence_encoders, and is not of group_type DEEP",
            hint="use group_type DEEP, or remove sequence_groups and sequence_encoders",
        )
    alone = message.group_name if len(message.sequence_groups) == 1 else ""
    return tuple(_sequence_group(inner, message, alone, features) for inner in message.sequence_groups)


def _sequence_group(
    message: SeqGroupConfig, outer: FeatureGroupConfig, default_name: str, features: Mapping[str, Feature]
) -> FeatureGroup:
    name = message.group_name or default_name
    if not name:
        _invalid(outer.group_name, "one of its sequence_groups has no group_name", hint="name each of them")
    check_name(name, f"feature_groups: {name}")
    group = FeatureGroup(
        name=name,
        kind=GroupKind.SEQUENCE,
        features=tuple(message.feature_names),
        table_suffix=message.embedding_name_suffix or outer.embedding_name_suffix,
    )
    _check_members(group, features)
    if not any(features[member].is_sequence for member in group.features):
        _invalid(name, "it names no sequence", hint="name features of a sequence, or delete the group")
    return group


def _encoders(
    message: FeatureGroupConfig, sequence_groups: Sequence[FeatureGroup]
) -> tuple[SequenceEncoderConfig, ...]:
    """Read the sequence encoders, and refuse a sequence group that none of them reads."""
    where = f"feature_groups: {message.group_name}"
    read = [
        read_sequence_encoder(encoder, f"{where}, sequence_encoders[{position}]")
        for position, encoder in enumerate(message.sequence_encoders)
    ]
    only = sequence_groups[0].name if len(sequence_groups) == 1 else ""
    encoders = tuple(encoder if encoder.group else replace(encoder, group=only) for encoder in read)
    names = {group.name for group in sequence_groups}
    inputs = {encoder.group for encoder in encoders}
    for name in sorted(inputs - names):
        _invalid(
            message.group_name,
            f"a sequence encoder reads {name or 'no group'}, which is none of its sequence_groups",
            hint=f"its sequence_groups are {name_first(sorted(names)) or 'none'}",
        )
    for name in sorted(names - inputs):
        _invalid(
            message.group_name,
            f"no sequence encoder reads its sequence group {name}",
            hint="add a sequence_encoders entry with that input, or delete the sequence group",
        )
    return encoders


def _is_its_own_sequence(group: FeatureGroup, groups: Iterable[FeatureGroup]) -> bool:
    """Return whether the name belongs to a DEEP group and to the only sequence group in it."""
    same = [other for other in groups if group.name in (other.name, *(s.name for s in other.sequence_groups))]
    return len(same) == 1 and [inner.name for inner in same[0].sequence_groups] == [group.name]


def _check_members(group: FeatureGroup, features: Mapping[str, Feature]) -> None:
    for position, name in enumerate(group.features):
        _check_member(group, name, features)
        if name in group.features[:position]:
            _invalid(group.name, f"it names {name} twice", hint="delete one of the two")
    if group.kind is GroupKind.JAGGED_SEQUENCE:
        _check_parents(group, [features[name] for name in group.features if features[name].is_sequence])


def _check_member(group: FeatureGroup, name: str, features: Mapping[str, Feature]) -> None:
    if name not in features:
        near = get_close_matches(name, features, n=3) or sorted(features)[:5]
        _invalid(
            group.name,
            f"no feature is named {name}",
            hint=f"near it are {name_first(near)}; a feature of stub_type is no model's input",
        )
    feature = features[name]
    if feature.table is not None and feature.table.dim == 0:
        raise InvalidPipelineConfig(
            f"feature {name}: embedding_dim is 0 or missing, and feature group {group.name} reads its table",
            hint="set embedding_dim to 1 or more",
            where=f"feature_configs: {name}",
        )
    if feature.weighted and feature.is_sequence:
        _refuse(
            group.name,
            f"{name} is a weighted sequence, whose weights TorchEasyRec does not read",
            hint="train the feature without `weighted`",
        )
    if group.kind is GroupKind.WIDE and not feature.is_sparse:
        _invalid(
            group.name,
            f"{name} is plain numbers, and a WIDE group looks its features up in tables",
            hint="name the feature in a DEEP group, or give it boundaries or buckets",
        )
    if group.kind is not GroupKind.DEEP and feature.dense_embedding is not None:
        _invalid(
            group.name,
            f"{name} has a dense embedding, which TorchEasyRec has in DEEP groups only",
            hint="use group_type DEEP, or remove autodis or mlp from the feature",
        )
    if group.kind is GroupKind.DEEP and feature.is_sequence and not feature.is_sparse:
        _invalid(
            group.name,
            f"{name} is a sequence of plain numbers, which a DEEP group has no vector for",
            hint="use group_type SEQUENCE or JAGGED_SEQUENCE",
        )


def _check_parents(group: FeatureGroup, sequences: Sequence[Feature]) -> None:
    """Refuse a jagged group of several sequences, because its features are concatenated element by element.

    Its sequence features are all of one sequence_feature, or all standalone. A padded group may mix them:
    each is padded or cut to the longest row of the first. A DEEP group pools each of its sequences by itself.
    """
    parents: dict[str, list[str]] = {}
    for feature in sequences:
        if feature.grouped and feature.sequence:
            parents.setdefault(f"sequence {feature.sequence.name}", []).append(feature.name)
    standalone = [feature.name for feature in sequences if not feature.grouped]
    if parents and standalone:
        parents["no sequence_feature"] = standalone
    if len(parents) > 1:
        named = " and ".join(f"{name_first(names)} of {parent}" for parent, names in parents.items())
        _refuse(
            group.name,
            f"it mixes {named}, whose rows need not be equally long",
            hint="give every sequence a group of its own, or write these features in one sequence_feature",
        )


def _refuse(group: str, problem: str, *, hint: str) -> NoReturn:
    raise UnsupportedConfig(f"feature group {group}: {problem}", hint=hint, where=f"feature_groups: {group}")


def _invalid(group: str, problem: str, *, hint: str) -> NoReturn:
    raise InvalidPipelineConfig(
        f"feature group {group}: {problem}", hint=hint, where=f"feature_groups: {group}"
    )

"""Standalone sequences become one where a group, or a model, joins their elements; else they stay apart."""

import pytest

from exporter.config.features.joined_sequences import join_sequences
from exporter.config.schema import Feature, FeatureGroup, FeatureKind, GroupKind, Sequence
from exporter.dims.plan import plan_dims
from exporter.errors import UnsupportedConfig


def feature(name: str, parent: str | None = None, *, length: int = 50, delim: str = ";") -> Feature:
    return Feature(
        name=name,
        bare_name=name,
        kind=FeatureKind.RAW,
        sequence=Sequence(name=parent or name, length=length, delim=delim),
        grouped=parent is not None,
    )


def group(name: str, *features: str, kind: GroupKind = GroupKind.JAGGED_SEQUENCE) -> FeatureGroup:
    return FeatureGroup(name=name, kind=kind, features=features)


def parents(features: tuple[Feature, ...]) -> dict[str, str]:
    return {each.name: each.sequence.name for each in features if each.sequence}


FEATURES = [feature("items"), feature("actions"), feature("times", delim="|")]


def test_a_jagged_group_makes_its_standalone_features_one_sequence() -> None:
    joined = join_sequences(FEATURES, [group("uih", "items", "times")])
    assert parents(joined) == {"items": "items", "actions": "actions", "times": "items"}
    assert [each.sequence.delim for each in joined if each.sequence] == [";", ";", "|"]


def test_a_model_joins_groups() -> None:
    groups = [group("uih", "items"), group("uih_action", "actions"), group("other", "times")]
    joined = join_sequences(FEATURES, groups, by_model=[("uih", "uih_action", "absent")])
    assert parents(joined) == {"items": "items", "actions": "items", "times": "times"}


def test_what_groups_share_they_join() -> None:
    groups = [group("one", "items", "actions"), group("other", "actions", "times")]
    assert set(parents(join_sequences(FEATURES, groups)).values()) == {"items"}


def test_padded_groups_and_separate_groups_join_nothing() -> None:
    groups = [group("din", "items", "times", kind=GroupKind.SEQUENCE), group("uih", "actions")]
    assert join_sequences(FEATURES, groups) == tuple(FEATURES)


def test_standalone_features_follow_a_parent_with_which_the_model_joins_them() -> None:
    features = [feature("actions", length=30), feature("seq__item", "seq"), feature("seq__extra", "seq")]
    groups = [group("uih_action", "actions"), group("uih", "seq__item")]
    joined = join_sequences(features, groups, by_model=[("uih", "uih_action")])
    assert {(each.sequence.name, each.sequence.length) for each in joined if each.sequence} == {("seq", 30)}


def test_two_parents_cannot_be_joined() -> None:
    features = [feature("a__item", "a"), feature("b__action", "b"), feature("b__time", "b")]
    groups = [group("uih", "a__item"), group("uih_action", "b__action"), group("uih_timestamp", "b__time")]
    with pytest.raises(UnsupportedConfig) as raised:
        join_sequences(features, groups, by_model=[("uih", "uih_action", "uih_timestamp")])
    assert raised.value.message == (
        "feature groups uih, uih_action, uih_timestamp are joined element by element, but hold features of "
        "different sequences: a (a__item) and b (b__action, b__time)"
    )


def test_the_plan_says_who_joined_them() -> None:
    groups = [group("uih", "items"), group("uih_action", "actions")]
    joined = join_sequences(FEATURES, groups, by_model=[("uih", "uih_action")])
    assert plan_dims(joined, max_batch_size=8).dim("seq_items").reason == (
        "elements of all rows, shared by 2 inputs of sequence items, whose standalone features "
        "groups uih, uih_action join element by element"
    )

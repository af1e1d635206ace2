"""Feature groups: what they name exists, once, and is of a kind Slipway builds."""

import pytest

from exporter.config.schema import GroupKind
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from tests.exporter.config.conftest import ParseEdited

_QUERY_TIME = 'group_name: "query_time"'


def test_groups_keep_the_order_of_the_config(parse_edited: ParseEdited) -> None:
    groups = parse_edited().groups
    assert [group.name for group in groups][:3] == ["contextual", "uih", "candidate"]
    assert groups[2].kind is GroupKind.JAGGED_SEQUENCE
    assert groups[2].features == ("cand_seq__video_id",)


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (('feature_names: "user_id"', 'feature_names: "user_ids"'), "no feature is named user_ids"),
        (('feature_names: "user_id"', 'feature_names: "user_id" feature_names: "user_id"'), "user_id twice"),
        ((_QUERY_TIME, 'group_name: "uih"'), "another group has the same name"),
        (('feature_names: "request_time"', ""), "names no feature"),
        (('feature_names: "user_id"', 'feature_names: "uih_seq__watch_time"'), "sequence of plain numbers"),
    ],
)
def test_a_group_that_cannot_be_read_is_invalid(
    parse_edited: ParseEdited, edit: tuple[str, str], named: str
) -> None:
    with pytest.raises(InvalidPipelineConfig, match=named):
        parse_edited(edit)


def test_one_table_is_pooled_in_one_way(parse_edited: ParseEdited) -> None:
    shared = 'embedding_dim: 16 embedding_name: "t"'
    one_size = ("num_buckets: 500", "num_buckets: 8")
    with pytest.raises(InvalidPipelineConfig, match="share table t, but one is pooled by mean"):
        parse_edited(
            one_size,
            ("embedding_dim: 16", f'{shared} pooling: "mean"'),
            ('"user:user_active_degree"\n    embedding_dim: 16', f'"user:user_active_degree" {shared}'),
        )


def test_a_near_miss_is_offered(parse_edited: ParseEdited) -> None:
    with pytest.raises(InvalidPipelineConfig) as raised:
        parse_edited(('feature_names: "uih_seq__video_id"', 'feature_names: "uih_video_id"'))
    assert "uih_seq__video_id" in raised.value.hint


@pytest.mark.parametrize(
    ("addition", "named"),
    [
        ('sequence_encoders { din_encoder { input: "x" attn_mlp {} } }', "din_encoder"),
        ('sequence_groups { group_name: "x" }', "sequence_groups"),
        ('embedding_name_suffix: "x"', "embedding_name_suffix"),
    ],
)
def test_an_unsupported_part_of_a_group_is_refused_by_name(
    parse_edited: ParseEdited, addition: str, named: str
) -> None:
    with pytest.raises(UnsupportedConfig, match=f"query_time: .*{named}"):
        parse_edited((_QUERY_TIME, f"{_QUERY_TIME} {addition}"))


def test_a_wide_group_is_refused(parse_edited: ParseEdited) -> None:
    with pytest.raises(UnsupportedConfig, match="WIDE"):
        parse_edited(("group_type: DEEP", "group_type: WIDE"))


_SEVERAL = """sequence_name: "uih_seq"
    features { id_feature {
      feature_name: "tags" expression: "item:tags" num_buckets: 9 embedding_dim: 16 value_dim: 0 } }"""
_CLICKS = """feature_configs { sequence_feature { sequence_name: "click_seq" sequence_length: 9
    features { id_feature {
      feature_name: "item" expression: "item:item" num_buckets: 9 embedding_dim: 16 } } } }"""
_ALONE = """feature_configs { sequence_id_feature {
    feature_name: "item" expression: "item:item" num_buckets: 9 embedding_dim: 16 } }"""
_UIH = 'feature_names: "uih_seq__video_id"'


def _beside(feature: str) -> tuple[str, str]:
    return _UIH, f'{_UIH} feature_names: "{feature}"'


def test_a_group_that_mixes_parents_is_refused(parse_edited: ParseEdited) -> None:
    with pytest.raises(UnsupportedConfig) as raised:
        parse_edited(("feature_configs", f"{_CLICKS} feature_configs"), _beside("click_seq__item"))
    assert raised.value.message == (
        "feature group uih: it mixes uih_seq__video_id of sequence uih_seq and click_seq__item of sequence "
        "click_seq, whose rows need not be equally long"
    )


def test_a_jagged_group_that_mixes_a_parent_and_none_is_refused(parse_edited: ParseEdited) -> None:
    with pytest.raises(UnsupportedConfig, match="uih: .* sequence uih_seq and item of no sequence_feature"):
        parse_edited(("feature_configs", f"{_ALONE} feature_configs"), _beside("item"))


def test_a_padded_group_is_refused_by_models_that_pad_nothing(parse_edited: ParseEdited) -> None:
    group = f'feature_groups {{ group_name: "din" group_type: SEQUENCE {_UIH} feature_names: "user_id" }}'
    with pytest.raises(UnsupportedConfig, match="group din pads uih_seq__video_id"):
        parse_edited(("feature_groups {", f"{group} feature_groups {{"))


@pytest.mark.parametrize("features", ["beside one of one value", "alone"])
def test_several_values_per_event_are_refused(parse_edited: ParseEdited, features: str) -> None:
    alone = (_UIH, 'feature_names: "uih_seq__tags"')
    with pytest.raises(UnsupportedConfig, match="group uih: uih_seq__tags of sequence uih_seq") as raised:
        parse_edited(
            ('sequence_name: "uih_seq"', _SEVERAL), alone if features == "alone" else _beside("uih_seq__tags")
        )
    assert ("beside uih_seq__video_id" in raised.value.message) is (features != "alone")


@pytest.mark.parametrize(
    ("old", "new", "feature", "named"),
    [
        ('sequence_name: "uih_seq"', _SEVERAL, "uih_seq__tags", "several values per event"),
        ("num_buckets: 500", "num_buckets: 500 weighted: true", "user_id", "weighted"),
    ],
)
def test_a_deep_group_pools_neither_several_values_per_event_nor_weights(
    parse_edited: ParseEdited, old: str, new: str, feature: str, named: str
) -> None:
    with pytest.raises(UnsupportedConfig, match=f"contextual: {feature} is .*{named}"):
        parse_edited((old, new), ('feature_names: "user_id"', f'feature_names: "{feature}"'))


def test_what_no_group_names_is_no_obstacle(parse_edited: ParseEdited) -> None:
    config = parse_edited(('sequence_name: "uih_seq"', _SEVERAL))
    assert config.feature("uih_seq__tags").is_multivalued

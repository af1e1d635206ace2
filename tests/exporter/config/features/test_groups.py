"""Feature groups: what they name exists, once, and is of a kind Slipway builds."""

import pytest
from torch import nn

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


def test_a_dense_embedding_beside_a_sequence_is_refused(parse_edited: ParseEdited) -> None:
    embedded = 'raw_feature { feature_name: "f" expression: "user:f" embedding_dim: 4 mlp {} }'
    with pytest.raises(InvalidPipelineConfig, match=r"group uih: f has a dense embedding, which .* DEEP"):
        parse_edited(
            ("feature_configs {", f"feature_configs {{ {embedded} }}\nfeature_configs {{"),
            ('feature_names: "uih_seq__video_id"', 'feature_names: "f" feature_names: "uih_seq__video_id"'),
        )


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


def _nested(*parts: str) -> tuple[str, str]:
    """The group of the context, with these parts added."""
    return 'group_name: "contextual"', f'group_name: "contextual" {" ".join(parts)}'


_SEQUENCE_GROUP = 'sequence_groups { group_name: "x" feature_names: "uih_seq__video_id" }'
_POOLED = "sequence_encoders { pooling_encoder {} }"


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ([_SEQUENCE_GROUP], "no sequence encoder reads its sequence group x"),
        ([_POOLED], "reads no group, which is none of its sequence_groups"),
        ([_SEQUENCE_GROUP, _POOLED.replace("{}", '{ input: "y" }')], "reads y, which is none"),
        (
            [_SEQUENCE_GROUP, _SEQUENCE_GROUP, _POOLED.replace("{}", '{ input: "x" }')],
            "another group has the same name",
        ),
        ([_SEQUENCE_GROUP.replace("uih_seq__video_id", "user_id"), _POOLED], "x: it names no sequence"),
        ([_SEQUENCE_GROUP.replace('group_name: "x"', "") * 2], "no group_name"),
    ],
)
def test_a_deep_group_and_its_sequences_belong_together(
    parse_edited: ParseEdited, parts: list[str], problem: str
) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parse_edited(_nested(*parts))


def test_hstu_models_are_exported_without_encoders(parse_edited: ParseEdited) -> None:
    with pytest.raises(UnsupportedConfig, match="contextual has sequence encoders"):
        parse_edited(_nested(_SEQUENCE_GROUP, _POOLED))


def test_a_suffix_sets_a_groups_tables_apart(parse_edited: ParseEdited) -> None:
    config = parse_edited(_nested('embedding_name_suffix: "ctx"'))
    feature = config.feature("user_id")
    assert config.group("contextual").table_of(feature).name == "user_id_emb_ctx"


def test_two_suffixes_do_not_make_one_name(parse_edited: ParseEdited) -> None:
    named = ("num_buckets: 500", 'num_buckets: 500 embedding_name: "t_b"')
    other = ('"user:user_active_degree"', '"user:user_active_degree" embedding_name: "t"')
    group = 'feature_groups { group_name: "g" group_type: DEEP feature_names: "user_active_degree" '
    with pytest.raises(InvalidPipelineConfig, match="two tables are named t_b"):
        parse_edited(
            named,
            other,
            ("num_buckets: 8", "num_buckets: 500"),
            ("feature_groups {", f'{group} embedding_name_suffix: "b" }} feature_groups {{'),
        )


def test_the_context_of_a_history_is_not_wide(parse_edited: ParseEdited) -> None:
    with pytest.raises(InvalidPipelineConfig, match="contextual: group_type is WIDE"):
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
    assert raised.value.message.endswith(
        ": feature group uih: it mixes uih_seq__video_id of sequence uih_seq and click_seq__item of sequence "
        "click_seq, whose rows need not be equally long"
    )


def test_a_jagged_group_that_mixes_a_parent_and_none_is_refused(parse_edited: ParseEdited) -> None:
    with pytest.raises(UnsupportedConfig, match="uih: .* sequence uih_seq and item of no sequence_feature"):
        parse_edited(("feature_configs", f"{_ALONE} feature_configs"), _beside("item"))


def test_a_padded_group_is_refused_by_models_that_pad_nothing(parse_edited: ParseEdited) -> None:
    group = f'feature_groups {{ group_name: "din" group_type: SEQUENCE {_UIH} feature_names: "user_id" }}'
    with pytest.raises(UnsupportedConfig, match="group din pads uih_seq__video_id"):
        parse_edited(("feature_groups {", f"{group} feature_groups {{"))


def test_several_values_per_event_are_pooled_before_anything_else(parse_edited: ParseEdited) -> None:
    config = parse_edited(('sequence_name: "uih_seq"', _SEVERAL), _beside("uih_seq__tags"))
    assert config.group("uih").features == ("uih_seq__video_id", "uih_seq__tags")


def test_a_weighted_sequence_is_refused(parse_edited: ParseEdited) -> None:
    weighted = _ALONE.replace("num_buckets", "weighted: true num_buckets")
    with pytest.raises(UnsupportedConfig, match="item is a weighted sequence"):
        parse_edited(
            ("feature_configs", f"{weighted} feature_configs"),
            ('feature_names: "user_id"', 'feature_names: "item"'),
        )


def test_a_group_is_of_sampled_features_or_of_others(parse_edited: ParseEdited) -> None:
    sampler = 'negative_sampler { attr_fields: "user_id" }'
    with pytest.raises(InvalidPipelineConfig, match=r"contextual: a sampler .* user_id \(__NEG__\)"):
        parse_edited(("force_base_data_group: true", sampler))


def test_what_no_group_names_is_no_obstacle(parse_edited: ParseEdited) -> None:
    config = parse_edited(('sequence_name: "uih_seq"', _SEVERAL))
    assert config.feature("uih_seq__tags").is_multivalued


@pytest.mark.parametrize("name", ["a.b", *(name for name in dir(nn.ModuleDict()) if name[:2] != "__")])
def test_a_group_is_not_called_as_no_module_can_be(parse_edited: ParseEdited, name: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match="cannot be the name of weights"):
        parse_edited((_QUERY_TIME, f'group_name: "{name}"'))

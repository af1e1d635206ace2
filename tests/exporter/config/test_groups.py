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

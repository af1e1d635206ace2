"""WIDE groups: narrow tables beside those that the same features have in other groups."""

import pytest

from exporter.config.features.widths import group_width
from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import FeatureGroup, PipelineConfig
from exporter.dims.plan import plan_group_tensors
from exporter.errors import InvalidPipelineConfig
from exporter.models.blocks.variational_dropout import GroupDropouts
from tests.exporter.config.conftest import FIXTURES

_WIDE = 'group_name: "wide"'
_DIM = "wide_embedding_dim: 4"


def parse(*edits: tuple[str, str], model: str = "deepfm") -> PipelineConfig:
    """The recorded config with pairs of (old, new) text replaced, the first occurrence of each."""
    text = (FIXTURES / model / "pipeline.config").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    return parse_pipeline_config(text)


def tables(pipeline: PipelineConfig, group: FeatureGroup) -> dict[str, int]:
    """Name and width of each table of a group."""
    found = [group.table_of(pipeline.feature(name)) for name in group.features]
    return {table.name: table.dim for table in found}


def test_tables_have_names_and_a_width_of_their_own() -> None:
    pipeline = parse()
    names = ("user_id_emb_wide", "tag_emb_wide", "item_emb_wide", "user_age_emb_wide")
    assert tables(pipeline, pipeline.group("wide")) == dict.fromkeys(names, 4)
    assert group_width(pipeline, "wide") == 16


@pytest.mark.parametrize(
    ("edit", "width"), [("wide_embedding_dim: 12", 12), ("", 4), ("wide_embedding_dim: 0", 4)]
)
def test_the_model_sets_their_width(edit: str, width: int) -> None:
    pipeline = parse((_DIM, edit))
    assert {*tables(pipeline, pipeline.group("wide")).values()} == {width}


def test_the_usual_width_is_the_models_own() -> None:
    assert parse(("wide_embedding_dim: 8", ""), model="xdeepfm").group("wide").wide_dim == 16


def test_a_suffix_stands_behind_the_name() -> None:
    pipeline = parse((_WIDE, f'{_WIDE} embedding_name_suffix: "b"'))
    assert "user_id_emb_wide_b" in tables(pipeline, pipeline.group("wide"))


def test_models_that_set_no_width_have_the_usual_one() -> None:
    sparse = 'group_name: "sparse"'
    extra = 'feature_groups { group_name: "more" group_type: WIDE feature_names: "user_id" } feature_groups'
    pipeline = parse((f"feature_groups {{\n    {sparse}", f"{extra} {{\n    {sparse}"), model="wukong")
    assert tables(pipeline, pipeline.group("more")) == {"user_id_emb_wide": 4}


def test_their_vector_is_as_wide_as_their_tables_together() -> None:
    plan = plan_group_tensors(parse(), max_batch_size=8)
    [wide] = [tensor for tensor in plan.inputs if tensor.name == "wide__ebc"]
    assert wide.shape == ("batch", 16)


def test_variational_dropout_scales_slices_of_their_width() -> None:
    pipeline = parse(("deepfm {", "variational_dropout {} deepfm {"))
    dropouts = GroupDropouts(pipeline)
    assert dropouts.get_parameter("wide.feature_dim_repeat").tolist() == [4, 4, 4, 4]
    assert set(dropouts) == {"wide", "fm", "deep"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (_WIDE, f'{_WIDE} feature_names: "user_income"', "user_income is plain numbers, and a WIDE group"),
        (_WIDE, f'{_WIDE} feature_names: "user_idd"', "no feature is named user_idd"),
        (
            _WIDE,
            f'{_WIDE} sequence_groups {{ group_name: "s" feature_names: "user_id" }}',
            "is not of group_type DEEP",
        ),
        (_WIDE, 'group_name: "broad"', "deepfm needs feature group wide, for its wide part"),
    ],
)
def test_what_a_wide_group_cannot_hold_is_refused(old: str, new: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        parse((old, new))


def test_a_table_of_that_name_in_another_group_is_the_same_table() -> None:
    named = ('feature_name: "user_age"', 'feature_name: "user_age" embedding_name: "user_id_emb_wide"')
    with pytest.raises(
        InvalidPipelineConfig, match="share table user_id_emb_wide, but one has 500 rows of width 4"
    ):
        parse(named)

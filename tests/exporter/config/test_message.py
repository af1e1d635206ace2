"""Text to message: what TorchEasyRec's parser takes is taken, and errors point into the text."""

import re

import pytest

from exporter.config.message import read_message, require_fields
from exporter.config.parse import parse_pipeline_config
from exporter.errors import InvalidPipelineConfig
from tests.exporter.config.conftest import FIXTURES


def test_an_unknown_name_is_an_error_with_line_and_column(text: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match='no field named "batch_sise"') as raised:
        read_message(text.replace("batch_size:", "batch_sise:", 1), "pipeline.config")
    line = text[: text.index("batch_size:")].count("\n") + 1
    assert raised.value.where == f"pipeline.config:{line}:3"


def test_broken_syntax_is_an_error_with_its_line() -> None:
    with pytest.raises(InvalidPipelineConfig) as raised:
        read_message("model_config {\n  num_class: }\n", "c")
    assert raised.value.where.startswith("c:2:")


def test_endless_nesting_is_an_error_not_a_crash() -> None:
    deep = 'fields { key: "a" value { struct_value { ' * 2000
    with pytest.raises(InvalidPipelineConfig, match="nested too deeply"):
        read_message(f"feature_configs {{ custom_feature {{ operator_params {{ {deep}", "c")


def test_a_field_given_twice_takes_its_last_value() -> None:
    message = read_message('model_dir: "a"\nmodel_dir: "b"', "c")
    assert message.model_dir == "b"


def test_missing_fields_that_an_export_needs_are_named(text: str) -> None:
    edited = text.replace('feature_name: "user_id"', "", 1).replace("max_seq_len: 96", "", 1)
    with pytest.raises(InvalidPipelineConfig) as raised:
        require_fields(read_message(edited, "c"), "c")
    assert "feature_configs[0].id_feature.feature_name" in raised.value.message
    assert "model_config.hstu_match.user_tower.max_seq_len" in raised.value.message


@pytest.mark.parametrize(
    "unneeded",
    [
        'model_dir: "."',
        'eval_input_path: "data/eval.parquet"',
        'expression: "user:user_id"',
        "sequence_length: 96",
    ],
)
def test_missing_fields_that_only_training_needs_are_none_of_our_business(text: str, unneeded: str) -> None:
    assert unneeded in text
    require_fields(read_message(text.replace(unneeded, "", 1), "c"), "c")


def test_a_required_field_with_a_default_may_be_left_out(text: str) -> None:
    message = read_message(text.replace("group_type: DEEP", "", 1), "c")
    require_fields(message, "c")
    assert message.model_config.feature_groups[0].group_type == 0


@pytest.mark.parametrize(
    ("model", "left_out"),
    [
        ("mind", "output_dim"),
        ("dssm", "output_dim"),
        ("dat", "output_dim"),
        ("dbmtl", "label_name"),
        ("dlrm_hstu", "label_name"),
    ],
)
def test_a_model_may_leave_out_what_is_unread_or_means_none(model: str, left_out: str) -> None:
    text = (FIXTURES / model / "pipeline.config").read_text()
    edited = re.sub(rf"\n *{left_out}: .*", "", text)
    assert edited != text
    require_fields(read_message(edited, "c"), "c")


@pytest.mark.parametrize(
    ("model", "left_out"),
    [
        ("dlrm_hstu", "num_heads: 2"),
        ("dlrm_hstu", "num_position_buckets: 128"),
        ("dbmtl", 'tower_name: "ctr"'),
    ],
)
def test_a_field_whose_unset_value_means_nothing_is_needed(model: str, left_out: str) -> None:
    text = (FIXTURES / model / "pipeline.config").read_text()
    assert left_out in text
    with pytest.raises(InvalidPipelineConfig, match=f"lacks required fields: .*{left_out.partition(':')[0]}"):
        require_fields(read_message(text.replace(left_out, "", 1), "c"), "c")


def test_a_projection_that_is_left_out_is_none() -> None:
    text = (FIXTURES / "mind" / "pipeline.config").read_text()
    model = parse_pipeline_config(re.sub(r"\n *output_dim: .*", "\n output_dim: 0", text)).model
    assert parse_pipeline_config(re.sub(r"\n *output_dim: .*", "", text)).model == model


@pytest.mark.parametrize(
    ("model", "message", "default"),
    [
        ("dcn_v1", "cross", "cross { cross_num: 3 }"),
        ("dcn_v2", "cross", "cross { cross_num: 3 low_rank: 32 }"),
        ("ple", "expert_num_per_task", "expert_num_per_task: 0"),
    ],
)
def test_what_is_left_out_of_a_model_has_its_default(model: str, message: str, default: str) -> None:
    text = (FIXTURES / model / "pipeline.config").read_text()
    field = rf"\b{message}(: \d+| \{{[^}}]*\}})"
    without = re.sub(field, "", text)
    assert without != text
    expected = parse_pipeline_config(re.sub(field, default, text)).model
    assert parse_pipeline_config(without).model == expected


def test_fields_behind_a_map_are_named_by_their_own_path() -> None:
    text = (FIXTURES / "multi_tower" / "pipeline.config").read_text()  # its custom features have maps
    edited = text.replace('    towers {\n      input: "user"', "    towers {", 1)
    assert edited != text
    with pytest.raises(
        InvalidPipelineConfig, match=r"lacks required fields: model_config\.multi_tower\.towers\[0\]"
    ):
        require_fields(read_message(edited, "c"), "c")

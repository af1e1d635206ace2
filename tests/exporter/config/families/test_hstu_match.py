"""hstu_match: every field is read, and what TorchEasyRec could not run is refused at submit."""

import pytest

from exporter.config.blocks.match_towers import Similarity
from exporter.config.blocks.mlp import MlpConfig
from exporter.config.families.match.hstu_match import HstuMatchConfig
from exporter.config.hstu.encoder import (
    ActionEncoderConfig,
    ContextualizedMlpConfig,
    PositionalEncoderConfig,
    PostprocessorKind,
    StuConfig,
)
from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import PipelineConfig
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig
from tests.exporter.config.conftest import ParseEdited

_TIMESTAMP_GROUP = 'group_name: "uih_timestamp"'
_NO_MLP_WIDTH = ("hidden_units: 32", "hidden_units: 16")
_SIMPLE_MLP = "simple_mlp {\n                hidden_dim: 48\n              }"
_ACTION_MLP = (f"action_mlp {{\n              {_SIMPLE_MLP}\n            }}", "")


def two_tower(pipeline: PipelineConfig) -> HstuMatchConfig:
    assert isinstance(pipeline.model, HstuMatchConfig)
    return pipeline.model


def test_the_towers_are_read(parse_edited: ParseEdited) -> None:
    model = two_tower(parse_edited())
    assert (model.user_input, model.item_input) == ("uih", "candidate")
    assert (model.max_seq_len, model.output_dim) == (96, 0)
    assert model.similarity is Similarity.COSINE
    assert model.timestamps_ascending
    assert model.item_mlp == MlpConfig(hidden_units=(32,), activation="")


def test_the_encoder_is_read(parse_edited: ParseEdited) -> None:
    hstu = two_tower(parse_edited()).hstu
    assert hstu.num_layers == 2
    assert hstu.stu == StuConfig(
        embedding_dim=32, num_heads=2, hidden_dim=16, attention_dim=16, use_group_norm=True
    )
    assert hstu.positional_encoder == PositionalEncoderConfig(
        num_position_buckets=128, num_time_buckets=256, use_time_encoding=True
    )
    assert hstu.postprocessor.kind is PostprocessorKind.L2NORM


def test_the_actions_are_read(desc_text: str) -> None:
    model = two_tower(parse_pipeline_config(desc_text))
    assert model.hstu.preprocessor.action_encoder == ActionEncoderConfig(
        embedding_dim=8,
        action_weights=(1, 2, 4, 8, 16, 32, 64, 128),
        watchtime_thresholds=(30, 120),
        watchtime_weights=(256, 512),
    )
    assert model.hstu.preprocessor.action_mlp == ContextualizedMlpConfig(hidden_dim=48)
    assert (model.output_dim, model.item_mlp, model.timestamps_ascending) == (24, None, False)


def test_periods_of_the_timestamp_postprocessor_are_read(parse_edited: ParseEdited) -> None:
    kind = "timestamp_layernorm_postprocessor"
    periods = "time_duration_period_units: 3600 time_duration_units_per_period: 24"
    model = two_tower(parse_edited(("l2norm_postprocessor {", f"{kind} {{ {periods}")))
    postprocessor = model.hstu.postprocessor
    assert (postprocessor.period_units, postprocessor.units_per_period) == ((3600,), (24,))


def test_attention_scale_of_zero_is_unset(parse_edited: ParseEdited) -> None:
    models = [
        two_tower(parse_edited(("num_heads: 2", f"num_heads: 2 attn_alpha: {scale}"))) for scale in (0, 0.5)
    ]
    assert [model.hstu.stu.attn_alpha for model in models] == [None, 0.5]


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (("hstu {", "hstu { attn_truncation_split_layer: 1"), "attn_truncation_tail_len 0"),
        (("hstu {", "hstu { attn_truncation_tail_len: 8"), "attn_truncation_split_layer is 0"),
        (
            ("hstu {", "hstu { attn_truncation_split_layer: 2 attn_truncation_tail_len: 8"),
            "not below attn_num_layers 2",
        ),
        (_ACTION_MLP, "without action_mlp"),
        (("action_weights: 1", "watchtime_to_action_thresholds: 30"), "0 watchtime_to_action_weights"),
        (("use_time_encoding: true", 'use_time_encoding: true time_bucket_fn: "cube"'), "time_bucket_fn"),
        (("num_time_buckets: 256", ""), "num_time_buckets is 0"),
        (("l2norm_postprocessor {\n          }", ""), "output_postprocessor"),
        (("num_heads: 2", "num_heads: 0"), "num_heads is 0"),
        (("similarity: COSINE", "similarity: COSINE in_batch_negative: true"), "in_batch_negative"),
        (("embedding_dim: 16", "embedding_dim: 8"), "differ in width"),
        (("num_position_buckets: 128", "num_position_buckets: 5"), "do not fit into num_position_buckets 5"),
        (_NO_MLP_WIDTH, r"user 32 .*item 16"),
        (('input: "uih"', 'input: "history"'), "read from group uih"),
    ],
)
def test_what_the_peer_could_not_run_is_refused(
    parse_edited: ParseEdited, edit: tuple[str, str], named: str
) -> None:
    with pytest.raises(InvalidPipelineConfig, match=named):
        parse_edited(edit)


@pytest.mark.parametrize("group", ["uih", "candidate", "uih_action", "uih_timestamp"])
def test_a_group_that_the_model_needs_is_asked_for(parse_edited: ParseEdited, group: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=f"needs feature group {group},"):
        parse_edited((f'group_name: "{group}"', 'group_name: "unheard_of"'))


def test_thresholds_need_watch_times(desc_text: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match="needs feature group uih_watchtime"):
        parse_pipeline_config(desc_text.replace('group_name: "uih_watchtime"', 'group_name: "other"'))


def test_without_thresholds_watch_times_are_not_needed(parse_edited: ParseEdited) -> None:
    parse_edited(('group_name: "uih_watchtime"', 'group_name: "other"'))


def test_the_history_group_must_be_jagged(parse_edited: ParseEdited) -> None:
    with pytest.raises(InvalidPipelineConfig, match="uih: group_type is SEQUENCE"):
        parse_edited(("group_type: JAGGED_SEQUENCE", "group_type: SEQUENCE"))


def test_times_must_be_plain_numbers(parse_edited: ParseEdited) -> None:
    ids = ('feature_names: "uih_seq__action_timestamp"', 'feature_names: "uih_seq__video_id"')
    with pytest.raises(InvalidPipelineConfig, match="one plain number per event"):
        parse_edited(ids)


def test_a_named_encoder_reads_groups_of_its_name(text: str) -> None:
    renamed = text.replace('group_name: "uih', 'group_name: "clicks').replace(
        'input: "uih"', 'input: "clicks"'
    )
    model = two_tower(parse_pipeline_config(renamed.replace("hstu {", 'hstu { name: "clicks"', 1)))
    assert (model.user_input, model.hstu.name) == ("clicks", "clicks")


def test_another_preprocessor_is_refused_by_name(parse_edited: ParseEdited) -> None:
    mlp = "{ simple_mlp { hidden_dim: 4 } }"
    other = (
        f"contextual_preprocessor {{ content_encoder {{ slice_content_encoder {{}} }} content_mlp {mlp} }}"
    )
    with pytest.raises(UnsupportedConfig, match="contextual_preprocessor"):
        parse_edited(("output_postprocessor {", f"input_preprocessor {{ {other} }} output_postprocessor {{"))


def test_standalone_sequences_of_the_history_share_one_length(parse_edited: ParseEdited) -> None:
    times = 'sequence_raw_feature { feature_name: "times" expression: "user:times" }'
    config = parse_edited(
        ("feature_configs {", f"feature_configs {{ {times} }} feature_configs {{"),
        ('feature_names: "uih_seq__action_timestamp"', 'feature_names: "times"'),
    )
    sequence = config.feature("times").sequence
    assert sequence is not None
    assert (sequence.name, sequence.delim) == ("uih_seq", ";")

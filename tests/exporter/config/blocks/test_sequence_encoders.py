"""Sequence encoders: what their messages say, and what they refuse."""

import pytest
from google.protobuf import text_format

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.sequence_encoders import (
    DinEncoderConfig,
    MultiWindowDinEncoderConfig,
    PoolingEncoderConfig,
    SelfAttentionEncoderConfig,
    SequenceEncoderConfig,
    SequencePooling,
    SimpleAttentionConfig,
    encoder_width,
    read_sequence_encoder,
)
from exporter.config.pb.sequence_encoder_pb2 import SeqEncoderConfig
from exporter.errors import InvalidPipelineConfig, UnsupportedConfig

_MLP = MlpConfig(hidden_units=(4,))
ENCODERS = {
    'din_encoder { input: "g" attn_mlp { hidden_units: 4 } max_seq_length: 9 }': DinEncoderConfig(
        group="g", attn_mlp=_MLP, max_seq_length=9
    ),
    'simple_attention { input: "g" max_seq_length: -1 }': SimpleAttentionConfig(group="g"),
    'pooling_encoder { input: "g" }': PoolingEncoderConfig(group="g", pooling=SequencePooling.MEAN),
    'multi_window_din_encoder { input: "g" attn_mlp { hidden_units: 4 } windows_len: 1 windows_len: 5 }': (
        MultiWindowDinEncoderConfig(group="g", attn_mlp=_MLP, windows=(1, 5))
    ),
    'self_attention_encoder { input: "g" }': SelfAttentionEncoderConfig(group="g", width=512, num_heads=8),
}


def read(text: str) -> SequenceEncoderConfig:
    return read_sequence_encoder(text_format.Parse(text, SeqEncoderConfig()), "deep")


@pytest.mark.parametrize(("text", "expected"), ENCODERS.items(), ids=[text.split()[0] for text in ENCODERS])
def test_a_message_becomes_its_dataclass(text: str, expected: SequenceEncoderConfig) -> None:
    assert read(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "deep: no encoder is chosen"),
        ('din_encoder { input: "g" attn_mlp {} }', "deep.din_encoder.attn_mlp: hidden_units are empty"),
        ('multi_window_din_encoder { input: "g" attn_mlp { hidden_units: 4 } }', "windows_len are empty"),
        ('self_attention_encoder { input: "g" num_heads: 7 }', "multihead_attn_dim is 512 and num_heads 7"),
        ('self_attention_encoder { input: "g" num_heads: 0 }', "num_heads 0"),
    ],
)
def test_contradictions_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        read(text)


def test_another_pooling_is_refused() -> None:
    with pytest.raises(UnsupportedConfig, match="pooling_type is 'max'"):
        read('pooling_encoder { input: "g" pooling_type: "max" }')


@pytest.mark.parametrize(("config", "width"), [*zip(ENCODERS.values(), (6, 6, 6, 18, 512), strict=True)])
def test_an_encoder_knows_its_width(config: SequenceEncoderConfig, width: int) -> None:
    assert encoder_width(config, query_width=6, sequence_width=6) == width


@pytest.mark.parametrize(
    ("config", "query", "problem"),
    [
        (DinEncoderConfig(group="g", attn_mlp=_MLP), 7, "query is 7 wide and its sequence 6"),
        (DinEncoderConfig(group="g", attn_mlp=_MLP), 0, "what reads it needs a query"),
        (SimpleAttentionConfig(group="g"), 5, "simple_attention multiplies the two"),
        (MultiWindowDinEncoderConfig(group="g", attn_mlp=_MLP, windows=(1,)), 7, "query is 7 wide"),
    ],
)
def test_widths_that_an_encoder_cannot_join_are_refused(
    config: SequenceEncoderConfig, query: int, problem: str
) -> None:
    with pytest.raises(InvalidPipelineConfig, match=problem):
        encoder_width(config, query_width=query, sequence_width=6)


def test_a_group_without_sequences_is_refused() -> None:
    with pytest.raises(InvalidPipelineConfig, match="what reads it needs a sequence"):
        encoder_width(PoolingEncoderConfig(group="g"), query_width=6, sequence_width=0)

"""The sequence encoders of a DEEP group as frozen dataclasses: each makes one vector of a sequence group.

What they say of widths: D is the sequence's, Dq the query's.
"""

from dataclasses import dataclass
from enum import StrEnum

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.refusals import invalid


@dataclass(frozen=True, kw_only=True)
class DinEncoderConfig:
    """din_encoder: attention of the query over the sequence, scored by perceptrons; D wide."""

    group: str
    attn_mlp: MlpConfig
    max_seq_length: int = 0  # 0: all of it


@dataclass(frozen=True, kw_only=True)
class SimpleAttentionConfig:
    """simple_attention: attention scored by the product with the query; D wide."""

    group: str
    max_seq_length: int = 0


class SequencePooling(StrEnum):
    """How a pooling_encoder makes one vector of many."""

    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, kw_only=True)
class PoolingEncoderConfig:
    """pooling_encoder: the sequence's sum or mean; D wide."""

    group: str
    pooling: SequencePooling = SequencePooling.MEAN
    max_seq_length: int = 0


@dataclass(frozen=True, kw_only=True)
class MultiWindowDinEncoderConfig:
    """multi_window_din_encoder: a scored mean of each window of the sequence, and the query; D wide each."""

    group: str
    attn_mlp: MlpConfig
    windows: tuple[int, ...]  # windows_len: elements of each, one behind the other from the first element


@dataclass(frozen=True, kw_only=True)
class SelfAttentionEncoderConfig:
    """self_attention_encoder: the mean of what heads of attention make of the sequence."""

    group: str
    width: int = 512  # multihead_attn_dim, of all heads together
    num_heads: int = 8
    max_seq_length: int = 0


SequenceEncoderConfig = (
    DinEncoderConfig
    | SimpleAttentionConfig
    | PoolingEncoderConfig
    | MultiWindowDinEncoderConfig
    | SelfAttentionEncoderConfig
)


def encoder_width(config: SequenceEncoderConfig, *, query_width: int, sequence_width: int) -> int:
    """The width of the block that an encoder appends to its DEEP group.

    Args:
        config: the encoder.
        query_width: of the group's query; 0 where the group has no features of one value per row.
        sequence_width: of the group's elements; 0 where the group has no sequences.

    Raises:
        InvalidPipelineConfig: the group's widths are not for this encoder.
    """
    _check_widths(config, query_width, sequence_width)
    match config:
        case SelfAttentionEncoderConfig():
            return config.width
        case MultiWindowDinEncoderConfig():
            return sequence_width * (len(config.windows) + 1)
        case DinEncoderConfig() | SimpleAttentionConfig() | PoolingEncoderConfig():
            return sequence_width


def check_attention_widths(where: str, *, query_width: int, sequence_width: int) -> None:
    """What DIN's attention demands of a group: a sequence, and a query that is no wider than its elements.

    Raises:
        InvalidPipelineConfig: naming what is missing, or the widths.
    """
    _require(where, "a sequence", sequence_width, "a sequence feature")
    _require(where, "a query", query_width, "a feature of one value per row, the candidate's")
    if query_width > sequence_width:
        invalid(
            where,
            f"its query is {query_width} wide and its sequence {sequence_width}; DIN compares the two and "
            "fills up the query only",
            hint="make the query's features no wider together than the sequence's",
        )


def _check_widths(config: SequenceEncoderConfig, query_width: int, sequence_width: int) -> None:
    where = f"sequence_groups: {config.group}"
    _require(where, "a sequence", sequence_width, "a sequence feature")
    match config:
        case DinEncoderConfig() | MultiWindowDinEncoderConfig():
            check_attention_widths(where, query_width=query_width, sequence_width=sequence_width)
        case SimpleAttentionConfig():
            _require(where, "a query", query_width, "a feature of one value per row, the candidate's")
            if query_width != sequence_width:
                invalid(
                    where,
                    f"its query is {query_width} wide and its sequence {sequence_width}, and "
                    "simple_attention multiplies the two",
                    hint="give both the same width, or use din_encoder",
                )
        case PoolingEncoderConfig() | SelfAttentionEncoderConfig():
            pass


def _require(where: str, part: str, width: int, feature: str) -> None:
    if width == 0:
        invalid(where, f"what reads it needs {part}, and it has none", hint=f"add {feature}, to the group")

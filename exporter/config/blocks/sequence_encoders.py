"""Sequence encoders of a DEEP group, each of which turns a sequence group into one vector: settings, reader.

D is the width of the sequence's elements.
"""

from dataclasses import dataclass
from enum import StrEnum

from exporter.config.blocks.mlp import MlpConfig, read_mlp
from exporter.config.pb.sequence_encoder_pb2 import (
    MultiWindowDINEncoder,
    PoolingEncoder,
    SelfAttentionEncoder,
    SeqEncoderConfig,
)
from exporter.config.pb.tower_pb2 import MultiWindowDINTower
from exporter.config.refusals import raise_invalid, raise_unsupported


@dataclass(frozen=True, kw_only=True)
class DinEncoderConfig:
    """din_encoder: attention of the query over the sequence, scored by an MLP; the output is D wide."""

    group: str
    attn_mlp: MlpConfig
    max_seq_length: int = 0  # 0: no limit


@dataclass(frozen=True, kw_only=True)
class SimpleAttentionConfig:
    """simple_attention: attention scored by the product with the query; the output is D wide."""

    group: str
    max_seq_length: int = 0


class SequencePooling(StrEnum):
    """Pooling of a pooling_encoder over a sequence's elements."""

    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, kw_only=True)
class PoolingEncoderConfig:
    """pooling_encoder: sum or mean of the sequence's elements; the output is D wide."""

    group: str
    pooling: SequencePooling = SequencePooling.MEAN
    max_seq_length: int = 0


@dataclass(frozen=True, kw_only=True)
class MultiWindowDinEncoderConfig:
    """multi_window_din_encoder: a scored mean of each window of the sequence, then the query; D wide each."""

    group: str
    attn_mlp: MlpConfig
    windows: tuple[
        int, ...
    ]  # windows_len: elements per window; windows follow each other from the first element


@dataclass(frozen=True, kw_only=True)
class SelfAttentionEncoderConfig:
    """self_attention_encoder: mean of a multi-head self-attention over the sequence; `width` wide."""

    group: str
    width: int = 512  # multihead_attn_dim: of all heads together
    num_heads: int = 8
    max_seq_length: int = 0


SequenceEncoderConfig = (
    DinEncoderConfig
    | SimpleAttentionConfig
    | PoolingEncoderConfig
    | MultiWindowDinEncoderConfig
    | SelfAttentionEncoderConfig
)


def read_sequence_encoder(message: SeqEncoderConfig, where: str) -> SequenceEncoderConfig:
    """Read one of a DEEP group's encoders; `where` is its place in the config, for errors.

    Raises:
        UnsupportedConfig: an unknown pooling_type, or an unknown activation.
        InvalidPipelineConfig: no encoder is chosen, or its fields contradict each other.
    """
    kind = message.WhichOneof("seq_module")
    if kind is None:
        raise_invalid(
            where, "no encoder is chosen", hint="add one, for example din_encoder, or delete the entry"
        )
    where = f"{where}.{kind}"
    match kind:
        case "din_encoder":
            return DinEncoderConfig(
                group=message.din_encoder.input,
                attn_mlp=read_mlp(message.din_encoder.attn_mlp, f"{where}.attn_mlp"),
                max_seq_length=_limit(message.din_encoder.max_seq_length),
            )
        case "simple_attention":
            return SimpleAttentionConfig(
                group=message.simple_attention.input,
                max_seq_length=_limit(message.simple_attention.max_seq_length),
            )
        case "pooling_encoder":
            return _read_pooling(message.pooling_encoder, where)
        case "multi_window_din_encoder":
            encoder = message.multi_window_din_encoder
            return read_multi_window_din(encoder, where, group=encoder.input)
        case "self_attention_encoder":
            return _read_self_attention(message.self_attention_encoder, where)
    raise AssertionError(kind)


def encoder_width(config: SequenceEncoderConfig, *, query_width: int, sequence_width: int) -> int:
    """Return the width of the vector that an encoder appends to its DEEP group, in values per row.

    Args:
        config: the encoder.
        query_width: width of the group's query; 0 where no feature of the group has one value per row.
        sequence_width: width of the group's elements; 0 where the group has no sequences.

    Raises:
        InvalidPipelineConfig: the encoder cannot read a group of these widths.
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
    """Refuse a group that DIN's attention cannot read: it needs a sequence, and a query no wider than that.

    Raises:
        InvalidPipelineConfig: naming what is missing, or the two widths.
    """
    _require(where, "a sequence", sequence_width, "a sequence feature")
    _require(where, "a query", query_width, "a feature of one value per row, the candidate's")
    if query_width > sequence_width:
        raise_invalid(
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
                raise_invalid(
                    where,
                    f"its query is {query_width} wide and its sequence {sequence_width}, and "
                    "simple_attention multiplies the two",
                    hint="give both the same width, or use din_encoder",
                )
        case PoolingEncoderConfig() | SelfAttentionEncoderConfig():
            pass


def _require(where: str, part: str, width: int, feature: str) -> None:
    if width == 0:
        raise_invalid(
            where, f"what reads it needs {part}, and it has none", hint=f"add {feature}, to the group"
        )


def _limit(max_seq_length: int) -> int:
    """Return the limit as 0 for none; TorchEasyRec takes every number below 1 for none."""
    return max(max_seq_length, 0)


def _read_pooling(message: PoolingEncoder, where: str) -> PoolingEncoderConfig:
    if message.pooling_type not in set(SequencePooling):
        raise_unsupported(where, f"pooling_type is {message.pooling_type!r}", hint='write "sum" or "mean"')
    return PoolingEncoderConfig(
        group=message.input,
        pooling=SequencePooling(message.pooling_type),
        max_seq_length=_limit(message.max_seq_length),
    )


def read_multi_window_din(
    message: MultiWindowDINEncoder | MultiWindowDINTower, where: str, *, group: str
) -> MultiWindowDinEncoderConfig:
    """Read multi-window DIN over a padded group, as an encoder or as a tower of its own."""
    if not message.windows_len or 0 in message.windows_len:
        raise_invalid(
            where, "windows_len are empty or hold a 0", hint="list the number of elements of every window"
        )
    return MultiWindowDinEncoderConfig(
        group=group,
        attn_mlp=read_mlp(message.attn_mlp, f"{where}.attn_mlp"),
        windows=tuple(message.windows_len),
    )


def _read_self_attention(message: SelfAttentionEncoder, where: str) -> SelfAttentionEncoderConfig:
    width, heads = message.multihead_attn_dim, message.num_heads
    if width <= 0 or heads <= 0 or width % heads:
        raise_invalid(
            where,
            f"multihead_attn_dim is {width} and num_heads {heads}",
            hint="set both above 0, and multihead_attn_dim to a multiple of num_heads",
        )
    return SelfAttentionEncoderConfig(
        group=message.input,
        width=width,
        num_heads=heads,
        max_seq_length=_limit(message.max_seq_length),
    )

"""The sequence-encoder messages to their dataclasses, refusing what contradicts itself."""

from exporter.config.blocks.mlp_messages import read_mlp
from exporter.config.blocks.sequence_encoders import (
    DinEncoderConfig,
    MultiWindowDinEncoderConfig,
    PoolingEncoderConfig,
    SelfAttentionEncoderConfig,
    SequenceEncoderConfig,
    SequencePooling,
    SimpleAttentionConfig,
)
from exporter.config.pb.sequence_encoder_pb2 import (
    MultiWindowDINEncoder,
    PoolingEncoder,
    SelfAttentionEncoder,
    SeqEncoderConfig,
)
from exporter.config.refusals import invalid, unsupported


def read_sequence_encoder(message: SeqEncoderConfig, where: str) -> SequenceEncoderConfig:
    """One of a DEEP group's encoders; `where` is its place in the config.

    Raises:
        UnsupportedConfig: a way of pooling that there is not.
        InvalidPipelineConfig: no encoder is chosen, or its fields contradict each other.
    """
    kind = message.WhichOneof("seq_module")
    if kind is None:
        invalid(where, "no encoder is chosen", hint="add one, as din_encoder, or delete the entry")
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
            return _read_multi_window(message.multi_window_din_encoder, where)
        case "self_attention_encoder":
            return _read_self_attention(message.self_attention_encoder, where)
    raise AssertionError(kind)


def _limit(max_seq_length: int) -> int:
    """TorchEasyRec takes what is below 1 for no limit."""
    return max(max_seq_length, 0)


def _read_pooling(message: PoolingEncoder, where: str) -> PoolingEncoderConfig:
    if message.pooling_type not in set(SequencePooling):
        unsupported(where, f"pooling_type is {message.pooling_type!r}", hint='write "sum" or "mean"')
    return PoolingEncoderConfig(
        group=message.input,
        pooling=SequencePooling(message.pooling_type),
        max_seq_length=_limit(message.max_seq_length),
    )


def _read_multi_window(message: MultiWindowDINEncoder, where: str) -> MultiWindowDinEncoderConfig:
    if not message.windows_len or 0 in message.windows_len:
        invalid(where, "windows_len are empty or hold a 0", hint="list how many elements each window has")
    return MultiWindowDinEncoderConfig(
        group=message.input,
        attn_mlp=read_mlp(message.attn_mlp, f"{where}.attn_mlp"),
        windows=tuple(message.windows_len),
    )


def _read_self_attention(message: SelfAttentionEncoder, where: str) -> SelfAttentionEncoderConfig:
    width, heads = message.multihead_attn_dim, message.num_heads
    if width <= 0 or heads <= 0 or width % heads:
        invalid(
            where,
            f"multihead_attn_dim is {width} and num_heads {heads}",
            hint="set both above 0, and the first to a multiple of the second",
        )
    return SelfAttentionEncoderConfig(
        group=message.input,
        width=width,
        num_heads=heads,
        max_seq_length=_limit(message.max_seq_length),
    )

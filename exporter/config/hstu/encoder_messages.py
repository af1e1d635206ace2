"""Readers of the HSTU messages; settings that contradict each other are refused."""

from exporter.config.blocks.mlp import read_mlp
from exporter.config.hstu.encoder import (
    ActionEncoderConfig,
    ContentEncoderConfig,
    ContentEncoderKind,
    ContextualizedMlpConfig,
    ContextualPreprocessorConfig,
    HstuConfig,
    PositionalEncoderConfig,
    PostprocessorConfig,
    PostprocessorKind,
    StuConfig,
    UihPreprocessorConfig,
)
from exporter.config.pb.hstu_pb2 import (
    HSTU,
    STU,
    GRActionEncoder,
    GRContentEncoder,
    GRContextualInterleavePreprocessor,
    GRContextualizedMLP,
    GRContextualPreprocessor,
    GROutputPostprocessor,
    GRPositionalEncoder,
    GRUIHPreprocessor,
)
from exporter.config.refusals import raise_invalid

_TIME_BUCKETS = ("sqrt", "log")


def read_hstu(
    message: HSTU, preprocessor: UihPreprocessorConfig | ContextualPreprocessorConfig, where: str
) -> HstuConfig:
    """Read an encoder around its `preprocessor`; `where` is its place in the config, for errors.

    Raises:
        InvalidPipelineConfig: fields that contradict each other, or that are 0 and must not be.
    """
    if message.attn_num_layers == 0:
        raise_invalid(where, "attn_num_layers is 0", hint="set at least 1")
    _check_truncation(message, where)
    return HstuConfig(
        stu=_read_stu(message.stu, f"{where}.stu"),
        num_layers=message.attn_num_layers,
        positional_encoder=_read_positions(message.positional_encoder, f"{where}.positional_encoder"),
        preprocessor=preprocessor,
        postprocessor=_read_postprocessor(message.output_postprocessor, f"{where}.output_postprocessor"),
        attn_truncation_split_layer=message.attn_truncation_split_layer,
        attn_truncation_tail_len=message.attn_truncation_tail_len,
        name=message.name,
    )


def _check_truncation(message: HSTU, where: str) -> None:
    split, tail = message.attn_truncation_split_layer, message.attn_truncation_tail_len
    if (split > 0) != (tail > 0):
        raise_invalid(
            where,
            f"attn_truncation_split_layer is {split} and attn_truncation_tail_len {tail}",
            hint="set both above 0 to truncate, or neither",
        )
    if split >= message.attn_num_layers:
        raise_invalid(
            where,
            f"attn_truncation_split_layer {split} is not below attn_num_layers {message.attn_num_layers}",
            hint="truncate after one of the layers but the last",
        )


def _read_stu(message: STU, where: str) -> StuConfig:
    for name in ("embedding_dim", "num_heads", "hidden_dim", "attention_dim"):
        if getattr(message, name) == 0:
            raise_invalid(where, f"{name} is 0", hint="set it above 0")
    if message.scaling_seqlen == 0:
        raise_invalid(
            where,
            "scaling_seqlen is 0, and attention is divided by it",
            hint="leave it out, or set it above 0",
        )
    return StuConfig(
        embedding_dim=message.embedding_dim,
        num_heads=message.num_heads,
        hidden_dim=message.hidden_dim,
        attention_dim=message.attention_dim,
        use_group_norm=message.use_group_norm,
        max_attn_len=message.max_attn_len,
        attn_alpha=message.attn_alpha or None,  # TorchEasyRec treats 0 as unset
        contextual_seq_len=message.contextual_seq_len,
        scaling_seqlen=message.scaling_seqlen,
        sla_k1=message.sla_k1,
        sla_k2=message.sla_k2,
    )


def _read_positions(message: GRPositionalEncoder, where: str) -> PositionalEncoderConfig:
    if message.num_position_buckets == 0:
        raise_invalid(where, "num_position_buckets is 0", hint="set it above 0")
    if message.use_time_encoding:
        if message.num_time_buckets == 0:
            raise_invalid(
                where,
                "use_time_encoding is set and num_time_buckets is 0",
                hint="set num_time_buckets above 0",
            )
        if message.time_bucket_fn not in _TIME_BUCKETS:
            raise_invalid(
                where, f"time_bucket_fn is {message.time_bucket_fn!r}", hint='write "sqrt" or "log"'
            )
        if message.time_bucket_increments <= 0:
            raise_invalid(where, "time_bucket_increments is not above 0", hint="give seconds per bucket")
    return PositionalEncoderConfig(
        num_position_buckets=message.num_position_buckets,
        num_time_buckets=message.num_time_buckets,
        use_time_encoding=message.use_time_encoding,
        time_bucket_fn=message.time_bucket_fn,
        time_bucket_increments=message.time_bucket_increments,
    )


def read_uih_preprocessor(message: GRUIHPreprocessor, where: str) -> UihPreprocessorConfig:
    """Read a preprocessor of the history alone; `where` is its place in the config."""
    action_encoder, action_mlp = _read_actions(message, where)
    return UihPreprocessorConfig(action_encoder=action_encoder, action_mlp=action_mlp)


def read_contextual_preprocessor(
    message: GRContextualPreprocessor | GRContextualInterleavePreprocessor, where: str
) -> ContextualPreprocessorConfig:
    """Read a preprocessor of history and candidates, interleaved or not; `where` is its place.

    Raises:
        InvalidPipelineConfig: interleaving without actions, or encoders that contradict themselves.
    """
    interleaved = isinstance(message, GRContextualInterleavePreprocessor) and message.enable_interleaving
    action_encoder, action_mlp = _read_actions(message, where)
    if interleaved and action_encoder is None:
        raise_invalid(
            where,
            "enable_interleaving is set without action_encoder",
            hint="add the action_encoder it was trained with, or set enable_interleaving: false",
        )
    return ContextualPreprocessorConfig(
        content_encoder=_read_content_encoder(message.content_encoder, f"{where}.content_encoder"),
        content_mlp=_read_contextualized_mlp(message.content_mlp, f"{where}.content_mlp"),
        action_encoder=action_encoder,
        action_mlp=action_mlp,
        interleaved=interleaved,
    )


def _read_content_encoder(message: GRContentEncoder, where: str) -> ContentEncoderConfig:
    kind = message.WhichOneof("content_encoder")
    if kind is None:
        raise_invalid(where, "no encoder is chosen", hint=f"add one of {', '.join(ContentEncoderKind)}")
    if kind != ContentEncoderKind.MLP:
        return ContentEncoderConfig(kind=ContentEncoderKind(kind))
    uih = read_mlp(message.mlp_content_encoder.uih_mlp, f"{where}.{kind}.uih_mlp")
    target = read_mlp(message.mlp_content_encoder.target_mlp, f"{where}.{kind}.target_mlp")
    if uih.hidden_units[-1] != target.hidden_units[-1]:
        raise_invalid(
            f"{where}.{kind}",
            f"uih_mlp ends in width {uih.hidden_units[-1]} and target_mlp in {target.hidden_units[-1]}",
            hint="let the last layers of uih_mlp and target_mlp have the same width",
        )
    return ContentEncoderConfig(kind=ContentEncoderKind.MLP, uih_mlp=uih, target_mlp=target)


def _read_actions(
    message: GRUIHPreprocessor | GRContextualPreprocessor | GRContextualInterleavePreprocessor, where: str
) -> tuple[ActionEncoderConfig | None, ContextualizedMlpConfig | None]:
    if not message.HasField("action_encoder"):
        return None, None
    if not message.HasField("action_mlp"):
        raise_invalid(
            where, "action_encoder is set without action_mlp", hint="add the action_mlp it was trained with"
        )
    return (
        _read_action_encoder(message.action_encoder, f"{where}.action_encoder"),
        _read_contextualized_mlp(message.action_mlp, f"{where}.action_mlp"),
    )


def _read_action_encoder(message: GRActionEncoder, where: str) -> ActionEncoderConfig:
    if message.WhichOneof("action_encoder") is None:
        raise_invalid(where, "no encoder is chosen", hint="add simple_action_encoder")
    encoder = message.simple_action_encoder
    thresholds, weights = encoder.watchtime_to_action_thresholds, encoder.watchtime_to_action_weights
    if len(thresholds) != len(weights):
        raise_invalid(
            where,
            f"{len(thresholds)} watchtime_to_action_thresholds, {len(weights)} watchtime_to_action_weights",
            hint="list one weight for every threshold",
        )
    if encoder.action_embedding_dim == 0 or not (encoder.action_weights or thresholds):
        raise_invalid(where, "action_embedding_dim or action_weights are missing", hint="set both")
    return ActionEncoderConfig(
        embedding_dim=encoder.action_embedding_dim,
        action_weights=tuple(encoder.action_weights),
        watchtime_thresholds=tuple(thresholds),
        watchtime_weights=tuple(weights),
    )


def _read_contextualized_mlp(message: GRContextualizedMLP, where: str) -> ContextualizedMlpConfig:
    kind = message.WhichOneof("contextualized_mlp")
    if kind is None:
        raise_invalid(where, "no mlp is chosen", hint="add simple_mlp or parameterized_mlp")
    parameterized = kind == "parameterized_mlp"
    mlp = message.parameterized_mlp if parameterized else message.simple_mlp
    if mlp.hidden_dim == 0:
        raise_invalid(where, "hidden_dim is 0", hint="set it above 0")
    return ContextualizedMlpConfig(hidden_dim=mlp.hidden_dim, parameterized=parameterized)


def _read_postprocessor(message: GROutputPostprocessor, where: str) -> PostprocessorConfig:
    kind = message.WhichOneof("output_postprocessor")
    if kind is None:
        raise_invalid(where, "no postprocessor is chosen", hint=f"add one of {', '.join(PostprocessorKind)}")
    timestamps = message.timestamp_layernorm_postprocessor  # empty where another kind is chosen
    units, counts = timestamps.time_duration_period_units, timestamps.time_duration_units_per_period
    if len(units) != len(counts):
        raise_invalid(
            where,
            f"{len(units)} time_duration_period_units, {len(counts)} time_duration_units_per_period",
            hint="list both for every period",
        )
    if kind == PostprocessorKind.TIMESTAMP_LAYERNORM and (not units or 0 in units or 0 in counts):
        raise_invalid(
            where,
            "its periods are empty or hold a 0",
            hint="list units and counts above 0, for example 3600 and 24",
        )
    return PostprocessorConfig(
        kind=PostprocessorKind(kind), period_units=tuple(units), units_per_period=tuple(counts)
    )

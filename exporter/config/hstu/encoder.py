"""HSTU encoder (Zhai et al. 2024, arXiv:2402.17152): its settings, without fields that only training reads.

Every dataclass is named after the message of TorchEasyRec's pipeline config that it is read from.
"""

from dataclasses import dataclass
from enum import StrEnum

from exporter.config.blocks.mlp import MlpConfig

# Feature groups that TorchEasyRec finds by these names in HSTU models.
CONTEXTUAL = "contextual"
QUERY_TIME = "query_time"
CANDIDATE = "candidate"
CANDIDATE_TIMESTAMP = "candidate_timestamp"


@dataclass(frozen=True, kw_only=True)
class ActionEncoderConfig:
    """simple_action_encoder: one embedding per bit of an event's action mask."""

    embedding_dim: int
    action_weights: tuple[int, ...]  # bit masks, one per action
    watchtime_thresholds: tuple[int, ...] = ()  # seconds; a watch time that reaches one sets its mask
    watchtime_weights: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ContextualizedMlpConfig:
    """simple_mlp, or parameterized_mlp, whose weights are computed from the contextual features."""

    hidden_dim: int
    parameterized: bool = False


@dataclass(frozen=True, kw_only=True)
class UihPreprocessorConfig:
    """uih_preprocessor: a sequence of the user's history, without candidates."""

    action_encoder: ActionEncoderConfig | None = None
    action_mlp: ContextualizedMlpConfig | None = None


class ContentEncoderKind(StrEnum):
    """Ways to give candidates and events one width."""

    SLICE = "slice_content_encoder"  # candidates are cut to the events' width
    PAD = "pad_content_encoder"  # events are zero-padded to the candidates' width
    MLP = "mlp_content_encoder"  # candidates and events each go through an MLP


@dataclass(frozen=True, kw_only=True)
class ContentEncoderConfig:
    """content_encoder of one kind; only mlp_content_encoder has the two MLPs."""

    kind: ContentEncoderKind
    uih_mlp: MlpConfig | None = None
    target_mlp: MlpConfig | None = None


@dataclass(frozen=True, kw_only=True)
class ContextualPreprocessorConfig:
    """contextual_preprocessor or contextual_interleave_preprocessor: candidates follow the history."""

    content_encoder: ContentEncoderConfig
    content_mlp: ContextualizedMlpConfig
    action_encoder: ActionEncoderConfig | None = None
    action_mlp: ContextualizedMlpConfig | None = None
    interleaved: bool = False  # True: an event's action is an element of its own, behind the event's content


@dataclass(frozen=True, kw_only=True)
class PositionalEncoderConfig:
    """positional_encoder: embeddings of positions, and of time differences where time encoding is on."""

    num_position_buckets: int
    num_time_buckets: int = 0
    use_time_encoding: bool = False
    time_bucket_fn: str = "sqrt"  # or "log"
    time_bucket_increments: float = 60.0  # seconds per bucket, before time_bucket_fn


class PostprocessorKind(StrEnum):
    """Last step over the encoded sequence."""

    L2NORM = "l2norm_postprocessor"
    LAYERNORM = "layernorm_postprocessor"
    TIMESTAMP_LAYERNORM = "timestamp_layernorm_postprocessor"


@dataclass(frozen=True, kw_only=True)
class PostprocessorConfig:
    """output_postprocessor of one kind; only timestamp_layernorm_postprocessor has periods."""

    kind: PostprocessorKind
    period_units: tuple[int, ...] = ()  # time_duration_period_units, seconds
    units_per_period: tuple[int, ...] = ()  # time_duration_units_per_period


@dataclass(frozen=True, kw_only=True)
class StuConfig:
    """stu: one sequential transduction unit; all layers of an encoder have the same settings."""

    embedding_dim: int
    num_heads: int
    hidden_dim: int
    attention_dim: int
    use_group_norm: bool = False
    max_attn_len: int = 0  # elements that a query may look back; 0: no limit
    attn_alpha: float | None = None  # None: 1 / sqrt(attention_dim)
    contextual_seq_len: int = -1  # elements of context in front; < 0: as many as the preprocessor puts there
    scaling_seqlen: int = -1  # divisor of the attention weights; < 0: the model's max_seq_len
    sla_k1: int = 0
    sla_k2: int = 0


@dataclass(frozen=True, kw_only=True)
class HstuConfig:
    """hstu: preprocessor, positional encoder, STU layers and postprocessor."""

    stu: StuConfig
    num_layers: int
    positional_encoder: PositionalEncoderConfig | None
    preprocessor: UihPreprocessorConfig | ContextualPreprocessorConfig
    postprocessor: PostprocessorConfig
    attn_truncation_split_layer: int = 0
    attn_truncation_tail_len: int = 0
    name: str = ""  # replaces "uih" in the names of the groups that the encoder reads

    @property
    def history(self) -> str:
        """Name of the group of the user's events."""
        return self.name or "uih"

    @property
    def history_groups(self) -> tuple[str, ...]:
        """Names of the groups that hold one element per event of the history."""
        return self.history, *(f"{self.history}_{part}" for part in ("action", "watchtime", "timestamp"))

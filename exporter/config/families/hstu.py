"""The HSTU messages of a pipeline config as frozen dataclasses; training-only fields are left out."""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from exporter.config.blocks.mlp import MlpConfig
from exporter.config.blocks.tasks import TaskConfig
from exporter.config.family import ONE_TOWER, TWO_TOWERS, FamilyConfig
from exporter.spec import TowerName

# Names that TorchEasyRec gives to feature groups of HSTU models.
CONTEXTUAL = "contextual"
QUERY_TIME = "query_time"
CANDIDATE = "candidate"
CANDIDATE_TIMESTAMP = "candidate_timestamp"


class Similarity(StrEnum):
    """How a user and an item embedding are compared."""

    COSINE = "COSINE"
    INNER_PRODUCT = "INNER_PRODUCT"
    EUCLID = "EUCLID"


@dataclass(frozen=True, kw_only=True)
class ActionEncoderConfig:
    """simple_action_encoder: one embedding per bit of an action mask."""

    embedding_dim: int
    action_weights: tuple[int, ...]  # bit masks
    watchtime_thresholds: tuple[int, ...] = ()  # seconds; reaching one sets its mask
    watchtime_weights: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ContextualizedMlpConfig:
    """simple_mlp, or parameterized_mlp whose weights depend on the contextual features."""

    hidden_dim: int
    parameterized: bool = False


@dataclass(frozen=True, kw_only=True)
class UihPreprocessorConfig:
    """uih_preprocessor: history only, no candidates in the sequence."""

    action_encoder: ActionEncoderConfig | None = None
    action_mlp: ContextualizedMlpConfig | None = None


class ContentEncoderKind(StrEnum):
    """How the candidates' width and the events' width become one."""

    SLICE = "slice_content_encoder"  # candidates are cut to the events' width
    PAD = "pad_content_encoder"  # events are filled up to the candidates' width
    MLP = "mlp_content_encoder"  # both go through perceptrons of their own


@dataclass(frozen=True, kw_only=True)
class ContentEncoderConfig:
    """One of the content encoders; the perceptrons are those of the mlp kind."""

    kind: ContentEncoderKind
    uih_mlp: MlpConfig | None = None
    target_mlp: MlpConfig | None = None


@dataclass(frozen=True, kw_only=True)
class ContextualPreprocessorConfig:
    """contextual_preprocessor, or contextual_interleave_preprocessor: candidates behind the history."""

    content_encoder: ContentEncoderConfig
    content_mlp: ContextualizedMlpConfig
    action_encoder: ActionEncoderConfig | None = None
    action_mlp: ContextualizedMlpConfig | None = None
    interleaved: bool = False  # an event's action is an element of its own, behind the event's content


@dataclass(frozen=True, kw_only=True)
class PositionalEncoderConfig:
    """Position buckets, and time buckets where time encoding is on."""

    num_position_buckets: int
    num_time_buckets: int = 0
    use_time_encoding: bool = False
    time_bucket_fn: str = "sqrt"  # or "log"
    time_bucket_increments: float = 60.0  # seconds


class PostprocessorKind(StrEnum):
    """What happens to the encoded sequence last."""

    L2NORM = "l2norm_postprocessor"
    LAYERNORM = "layernorm_postprocessor"
    TIMESTAMP_LAYERNORM = "timestamp_layernorm_postprocessor"


@dataclass(frozen=True, kw_only=True)
class PostprocessorConfig:
    """The output postprocessor; the periods are those of the timestamp kind."""

    kind: PostprocessorKind
    period_units: tuple[int, ...] = ()  # time_duration_period_units, seconds
    units_per_period: tuple[int, ...] = ()  # time_duration_units_per_period


@dataclass(frozen=True, kw_only=True)
class StuConfig:
    """One STU layer (all layers are alike)."""

    embedding_dim: int
    num_heads: int
    hidden_dim: int
    attention_dim: int
    use_group_norm: bool = False
    max_attn_len: int = 0  # 0: unlimited
    attn_alpha: float | None = None  # None: 1 / sqrt(attention_dim)
    contextual_seq_len: int = -1  # < 0: as many as the preprocessor puts in front
    scaling_seqlen: int = -1  # < 0: the tower's max_seq_len
    sla_k1: int = 0
    sla_k2: int = 0


@dataclass(frozen=True, kw_only=True)
class HstuConfig:
    """The encoder: preprocessor, positions, STU layers, postprocessor."""

    stu: StuConfig
    num_layers: int
    positional_encoder: PositionalEncoderConfig | None
    preprocessor: UihPreprocessorConfig | ContextualPreprocessorConfig
    postprocessor: PostprocessorConfig
    attn_truncation_split_layer: int = 0
    attn_truncation_tail_len: int = 0
    name: str = ""  # replaces "uih" in the names of the groups that are read

    @property
    def history(self) -> str:
        """The group of the user's events."""
        return self.name or "uih"

    @property
    def history_groups(self) -> tuple[str, ...]:
        """The groups that describe the events of the history, one element each."""
        return self.history, *(f"{self.history}_{part}" for part in ("action", "watchtime", "timestamp"))


@dataclass(frozen=True, kw_only=True)
class HstuMatchConfig(FamilyConfig):
    """hstu_match: a user tower over the history, an item tower over the candidate."""

    user_input: str  # group name
    hstu: HstuConfig
    max_seq_len: int
    item_input: str  # group name
    item_mlp: MlpConfig | None
    output_dim: int  # 0: no output projection
    similarity: Similarity
    timestamps_ascending: bool
    family: str = "hstu_match"
    towers: ClassVar[tuple[TowerName, ...]] = TWO_TOWERS
    trains_on_candidate_sequences: ClassVar[bool] = True

    @property
    def groups_in_step(self) -> tuple[tuple[str, ...], ...]:
        return (self.hstu.history_groups,)

    def attends(self, tower: TowerName) -> bool:
        return tower is TowerName.USER

    def reads(self, tower: TowerName, group: str) -> bool:
        """The item tower reads the candidates, and the user tower all other groups."""
        return (group == self.item_input) == (tower is TowerName.ITEM)


@dataclass(frozen=True, kw_only=True)
class DlrmHstuConfig(FamilyConfig):
    """dlrm_hstu: history and candidates in one sequence, several tasks per candidate."""

    hstu: HstuConfig
    max_seq_len: int
    item_embedding_hidden_dim: int
    tower_mlp: MlpConfig | None
    tasks: tuple[TaskConfig, ...]
    timestamps_ascending: bool
    concat_contextual: bool  # all contextual features are one element, not one each
    family: str = "dlrm_hstu"
    towers: ClassVar[tuple[TowerName, ...]] = ONE_TOWER

    @property
    def groups_in_step(self) -> tuple[tuple[str, ...], ...]:
        return self.hstu.history_groups, (CANDIDATE, CANDIDATE_TIMESTAMP)

    def attends(self, _tower: TowerName) -> bool:
        return True

    def reads(self, _tower: TowerName, _group: str) -> bool:
        """Every group there is."""
        return True

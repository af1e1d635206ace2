"""Model as its pipeline config describes it: features, sequences, tables and feature groups. Pure data."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from exporter.config.blocks.dense_embedding import DenseEmbeddingConfig
from exporter.config.blocks.sequence_encoders import SequenceEncoderConfig
from exporter.config.build_options import BuildOptions
from exporter.config.family import FamilyConfig
from exporter.dtypes import Kernel, Precision, TableDtype
from exporter.spec import TowerName


class FeatureKind(StrEnum):
    """Kind of feature generation behind a feature; a model only sees whether the feature has a table."""

    ID = "id_feature"
    RAW = "raw_feature"
    COMBO = "combo_feature"
    LOOKUP = "lookup_feature"
    MATCH = "match_feature"
    EXPR = "expr_feature"
    OVERLAP = "overlap_feature"
    KV_DOT_PRODUCT = "kv_dot_product"
    COMBINE = "combine_feature"
    BOOL_MASK = "bool_mask_feature"
    TOKENIZE = "tokenize_feature"
    CUSTOM = "custom_feature"


class DataGroup(StrEnum):
    """Rows that training reads a feature from; features of different data groups never share a table."""

    BASE = "__BASE__"
    NEG = "__NEG__"  # sampled rows: one per candidate and per negative
    CROSS_NEG = "__CNEG__"  # computed from sampled values and others


class GroupKind(StrEnum):
    """Shape in which a feature group presents its features to the model."""

    DEEP = "DEEP"  # one vector per row
    WIDE = "WIDE"  # one vector per row, from narrow tables that no group of another kind reads
    SEQUENCE = "SEQUENCE"  # padded: (rows, longest length, width)
    JAGGED_SEQUENCE = "JAGGED_SEQUENCE"  # all elements of all rows one after another: (elements, width)

    @property
    def is_row_vector(self) -> bool:
        """Return whether the group is one vector per row."""
        return self in (GroupKind.DEEP, GroupKind.WIDE)


class Pooling(StrEnum):
    """Reduction of the embeddings of one row's ids to one vector."""

    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """A parent whose features share lengths: element i of each belongs to one event."""

    name: str
    length: int  # sequence_length: events per row that the config declares; 0: it declares none
    delim: str  # sequence_delim: between events where a row is one string
    joined_by: tuple[str, ...] = ()  # groups that join standalone features into this one sequence


class IdMapKind(StrEnum):
    """Origin of the map that turns ids of any size into row numbers of a table."""

    ZCH = "zch"  # zero-collision hashing: TorchRec's managed collision modules
    DYNAMICEMB = (
        "dynamicemb"  # NVIDIA's tables, which grow: the checkpoint's files say how many rows there are
    )


ROWS_OF_CHECKPOINT = 0  # rows of a table whose size a vocabulary's or tokenizer's file decided in training


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """An embedding table; features that name the same table share it."""

    name: str
    rows: int  # ROWS_OF_CHECKPOINT until the checkpoint is there
    dim: int
    id_map: IdMapKind | None = None  # None: ids are row numbers; otherwise any int64
    unknown: float = 0.0  # dynamicemb: every number of the row that ids without a row have
    dtype: TableDtype = TableDtype.FP32  # of its rows as trained, and in the checkpoint: fp32 or fp16

    def __str__(self) -> str:
        rows = "the checkpoint's" if self.rows == ROWS_OF_CHECKPOINT else str(self.rows)
        found = f", found by {self.id_map}" if self.id_map else ""
        return f"{rows} rows of width {self.dim} in {self.dtype}{found}"


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One model input as the pipeline config defines it, defaults made effective."""

    name: str  # flattened: "uih_seq__video_id"; the column and the tensors' prefix
    bare_name: str  # as written in the config: "video_id"
    kind: FeatureKind
    sequence: Sequence | None = None  # that of a standalone sequence feature has the feature's name,
    # or the name of the sequence whose lengths the model requires it to have
    grouped: bool = False  # written inside a `sequence_feature` block
    table: TableConfig | None = None  # None: values are plain numbers, which the model reads as they are
    dense_embedding: DenseEmbeddingConfig | None = None  # of plain numbers; None: they are read as they are
    value_dim: int = 1  # values per element; 0: any number
    fixed_width: bool = False  # True: every element has exactly `value_dim` values, even if they are ids
    default_value: str = ""
    fill_value: str | None = None  # fg_encoded_default_value: what a null row becomes
    separator: str = "\x03"  # between the values of one element in a string
    weighted: bool = False  # True: every id comes with a weight
    pooling: Pooling = Pooling.SUM  # reduction of several ids to one vector
    data_group: DataGroup = DataGroup.BASE
    view_of: str | None = None  # in a scalar view: the training feature that this one presents

    @property
    def is_sequence(self) -> bool:
        return self.sequence is not None

    @property
    def is_sparse(self) -> bool:
        """Return whether values are row numbers of a table (int64), not numbers (float32)."""
        return self.table is not None

    @property
    def is_multivalued(self) -> bool:
        return self.is_sparse and self.value_dim != 1 and not self.fixed_width

    @property
    def width(self) -> int:
        """Width that the feature adds to the vector of a group that is not WIDE, in values."""
        return self.dense_embedding.dim if self.dense_embedding else self.looked_up_width

    @property
    def looked_up_width(self) -> int:
        """Width of the feature before its dense embedding: that of its table's rows, or its numbers."""
        return self.table.dim if self.table else self.value_dim


@dataclass(frozen=True, kw_only=True)
class FeatureGroup:
    """Features that enter the model together, in this order.

    A DEEP group may have sequence groups inside it, each read by an encoder: its vector is the vector of its
    own features, followed by the output of every encoder.
    """

    name: str
    kind: GroupKind
    features: tuple[str, ...]  # flattened names
    table_suffix: str = ""  # embedding_name_suffix: keeps its tables apart from those of other groups
    wide_dim: int = 0  # width of every table of a WIDE group, whatever the feature's own
    sequence_groups: tuple["FeatureGroup", ...] = ()  # of kind SEQUENCE
    encoders: tuple[SequenceEncoderConfig, ...] = ()

    @property
    def all_features(self) -> tuple[str, ...]:
        """Names of its features and of those of its sequence groups, each once."""
        nested = (name for group in self.sequence_groups for name in group.features)
        return tuple(dict.fromkeys((*self.features, *nested)))

    def table_of(self, feature: Feature) -> TableConfig:
        """Return the feature's table, under the name and of the width that it has in this group."""
        assert feature.table is not None
        wide = "_wide" if self.kind is GroupKind.WIDE else ""
        suffix = f"_{self.table_suffix}" if self.table_suffix else ""
        return replace(
            feature.table, name=feature.table.name + wide + suffix, dim=self.wide_dim or feature.table.dim
        )

    def width_of(self, feature: Feature) -> int:
        """Return the width that the feature adds to the group's vector, in values."""
        return self.wide_dim or feature.width


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """A parsed pipeline config, with the text it came from."""

    text: str
    features: tuple[Feature, ...]
    groups: tuple[FeatureGroup, ...]
    model: FamilyConfig
    train_input_path: str
    train_rows_are_encoded: bool = True  # False: raw rows, which need feature generation first
    item_id_field: str = ""  # column of the training rows that identifies an item; empty without a sampler
    averaged_weights: bool = False  # True: dense weights are taken from the checkpoint's dense_ema
    default_precision: Precision = Precision.FP32  # export_config.mixed_precision
    default_kernel: Kernel = Kernel.PYTORCH  # model_config.kernel, on CUDA
    variational_dropout: bool = False  # True: groups scale each feature by its learned rate of being kept

    def feature(self, name: str) -> Feature:
        return next(feature for feature in self.features if feature.name == name)

    def group(self, name: str) -> FeatureGroup:
        return next(group for group in self.groups if group.name == name)

    @property
    def default_options(self) -> BuildOptions:
        """Options of a tower where a request leaves the choice to the config."""
        return BuildOptions(precision=self.default_precision, kernel=self.default_kernel)

    @property
    def embedded_groups(self) -> tuple[FeatureGroup, ...]:
        """All groups that are looked up in tables: each group, followed by its sequence groups."""
        return tuple(inner for group in self.groups for inner in (group, *group.sequence_groups))


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """One tower: the part of the pipeline config that it reads, in the tower's view, and its build options.

    `pipeline.features` and `pipeline.groups` are the tower's own, in that view; `pipeline.text` and
    `pipeline.model` stay those of the training view.
    """

    name: TowerName
    view: Literal["training", "scalar", "declared"]
    pipeline: PipelineConfig
    options: BuildOptions = field(default_factory=BuildOptions)

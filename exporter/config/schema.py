"""The model as training described it: features, sequences, groups. Pure data, no torch, no protobuf."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from exporter.config.blocks.sequence_encoders import SequenceEncoderConfig
from exporter.config.build_options import BuildOptions
from exporter.config.family import FamilyConfig
from exporter.dtypes import Kernel, Precision
from exporter.spec import TowerName


class FeatureKind(StrEnum):
    """How feature generation makes a feature; a model sees only whether there is a table behind it."""

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


class DataGroup(StrEnum):
    """Which rows training reads a feature from; tables of different ones are never shared."""

    BASE = "__BASE__"
    NEG = "__NEG__"  # sampled: as many rows as candidates and negatives
    CROSS_NEG = "__CNEG__"  # made of sampled values and others


class GroupKind(StrEnum):
    """How a feature group presents its features to the model."""

    DEEP = "DEEP"  # one vector per row
    SEQUENCE = "SEQUENCE"  # padded: rows, longest length, width
    JAGGED_SEQUENCE = "JAGGED_SEQUENCE"  # all elements of all rows one after another


class Pooling(StrEnum):
    """How the embeddings of one row's ids become one vector."""

    SUM = "sum"
    MEAN = "mean"


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """A parent whose features share lengths: element i of each belongs to one event."""

    name: str
    length: int  # sequence_length: events per row that the config declares; 0: it declares none
    delim: str  # sequence_delim: between events where a row is one string
    joined_by: tuple[str, ...] = ()  # groups that join standalone features, and so make them one sequence


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """An embedding table; features that name the same one share it."""

    name: str
    rows: int
    dim: int


@dataclass(frozen=True, kw_only=True)
class Feature:
    """One model input as the pipeline config defines it, defaults made effective."""

    name: str  # flattened: "uih_seq__video_id"; the column and the tensors' prefix
    bare_name: str  # as written in the config: "video_id"
    kind: FeatureKind
    sequence: Sequence | None = None  # of a standalone sequence feature: named like the feature,
    # or like the sequence whose lengths the model requires it to have
    grouped: bool = False  # written inside a `sequence_feature` block
    table: TableConfig | None = None  # None: dense values go into the model as they are
    value_dim: int = 1  # values per element; 0: any number
    fixed_width: bool = False  # every element holds exactly `value_dim` values, where they are ids as well
    default_value: str = ""
    fill_value: str | None = None  # fg_encoded_default_value: what a null row becomes
    separator: str = "\x03"  # between the values of one element in a string
    weighted: bool = False  # every id comes with a factor
    pooling: Pooling = Pooling.SUM  # where several ids become one vector
    data_group: DataGroup = DataGroup.BASE
    view_of: str | None = None  # in a scalar view: the training feature that this one presents

    @property
    def is_sequence(self) -> bool:
        return self.sequence is not None

    @property
    def is_sparse(self) -> bool:
        """Whether values are row numbers of a table (int64), not numbers (float32)."""
        return self.table is not None

    @property
    def is_multivalued(self) -> bool:
        return self.is_sparse and self.value_dim != 1 and not self.fixed_width

    @property
    def width(self) -> int:
        """How many numbers it adds to the vector of its group."""
        return self.table.dim if self.table else self.value_dim


@dataclass(frozen=True, kw_only=True)
class FeatureGroup:
    """Features that enter the model together, in this order.

    A DEEP group may hold sequences too, in groups of their own, each read by an encoder: its vector is that
    of its features, followed by what each encoder makes of a sequence.
    """

    name: str
    kind: GroupKind
    features: tuple[str, ...]  # flattened names
    table_suffix: str = ""  # embedding_name_suffix: sets its tables apart from those of other groups
    sequence_groups: tuple["FeatureGroup", ...] = ()  # of kind SEQUENCE
    encoders: tuple[SequenceEncoderConfig, ...] = ()

    @property
    def all_features(self) -> tuple[str, ...]:
        """Also those of its sequence groups, each once."""
        nested = (name for group in self.sequence_groups for name in group.features)
        return tuple(dict.fromkeys((*self.features, *nested)))

    def table_of(self, feature: Feature) -> TableConfig:
        """The feature's table under the name it has in this group."""
        assert feature.table is not None
        suffix = f"_{self.table_suffix}" if self.table_suffix else ""
        return replace(feature.table, name=feature.table.name + suffix)


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """A parsed pipeline config, with the text it came from."""

    text: str
    features: tuple[Feature, ...]
    groups: tuple[FeatureGroup, ...]
    model: FamilyConfig
    train_input_path: str
    train_rows_are_encoded: bool = True  # False: raw rows, which feature generation must turn into ids first
    item_id_field: str = ""  # the training rows' column that names an item, where a sampler needs it
    averaged_weights: bool = False  # dense weights are those of the checkpoint's dense_ema
    default_precision: Precision = Precision.FP32  # export_config.mixed_precision
    default_kernel: Kernel = Kernel.PYTORCH  # model_config.kernel, on CUDA
    variational_dropout: bool = False  # groups of several features scale each by how often it was kept

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
        """Every group that is looked up: the groups, each followed by its sequence groups."""
        return tuple(inner for group in self.groups for inner in (group, *group.sequence_groups))


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """What a tower reads: the pipeline config as seen through the tower's view.

    `pipeline.features` and `pipeline.groups` are the tower's own, in that view; `pipeline.text` and
    `pipeline.model` stay those of the training view.
    """

    name: TowerName
    view: Literal["training", "scalar", "declared"]
    pipeline: PipelineConfig
    options: BuildOptions = field(default_factory=BuildOptions)

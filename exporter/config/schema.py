"""The model as training described it: features, sequences, groups. Pure data, no torch, no protobuf."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from exporter.config.hstu import DlrmHstuConfig, HstuMatchConfig
from exporter.spec import TowerName


class FeatureKind(StrEnum):
    """What a feature holds: ids looked up in a table, or raw numbers."""

    ID = "id_feature"
    RAW = "raw_feature"


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
class Table:
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
    expression: str
    sequence: Sequence | None = None  # of a standalone sequence feature: named like the feature,
    # or like the sequence whose lengths the model requires it to have
    grouped: bool = False  # written inside a `sequence_feature` block
    table: Table | None = None  # None: dense values go into the model as they are
    value_dim: int = 1  # values per element; 0: any number
    value_dim_is_set: bool = False  # written in the config, not a default
    default_value: str = ""
    default_value_is_set: bool = False
    fill_value: str | None = None  # fg_encoded_default_value: what a null row becomes
    separator: str = "\x03"  # between the values of one element in a string
    weighted: bool = False  # every id comes with a factor
    pooling: Pooling = Pooling.SUM  # where a row's ids become one vector
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
        return self.is_sparse and self.value_dim != 1

    @property
    def width(self) -> int:
        """How many numbers it adds to the vector of its group."""
        return self.table.dim if self.table else self.value_dim


@dataclass(frozen=True, kw_only=True)
class FeatureGroup:
    """Features that enter the model together, in this order."""

    name: str
    kind: GroupKind
    features: tuple[str, ...]  # flattened names


ModelConfig = HstuMatchConfig | DlrmHstuConfig


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """A parsed pipeline config, with the text it came from."""

    text: str
    features: tuple[Feature, ...]
    groups: tuple[FeatureGroup, ...]
    model: ModelConfig
    train_input_path: str
    train_rows_are_encoded: bool = True  # False: raw rows, which feature generation must turn into ids first
    item_id_field: str = ""  # the training rows' column that names an item, where a sampler needs it
    averaged_weights: bool = False  # dense weights are those of the checkpoint's dense_ema

    def feature(self, name: str) -> Feature:
        return next(feature for feature in self.features if feature.name == name)

    def group(self, name: str) -> FeatureGroup:
        return next(group for group in self.groups if group.name == name)


@dataclass(frozen=True, kw_only=True)
class TowerConfig:
    """What a tower reads: the pipeline config as seen through the tower's view.

    `pipeline.features` and `pipeline.groups` are the tower's own, in that view; `pipeline.text` and
    `pipeline.model` stay those of the training view.
    """

    name: TowerName
    view: Literal["training", "scalar"]
    pipeline: PipelineConfig

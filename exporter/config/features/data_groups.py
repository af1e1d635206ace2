"""Data groups of features: rows that a sampler draws have a batch size of their own in training."""

from dataclasses import dataclass
from typing import Self

from exporter.config.features.feature_messages import FeatureSource
from exporter.config.pb.data_pb2 import DataConfig, FgMode
from exporter.config.schema import DataGroup, FeatureKind

_OF_ONE_SIDE = (FeatureKind.ID, FeatureKind.RAW, FeatureKind.COMBINE, FeatureKind.TOKENIZE)


@dataclass(frozen=True, kw_only=True)
class DataGroups:
    """Columns that a sampler draws, and whether rows hold encoded features or raw values."""

    sampled: frozenset[str]
    rows_are_encoded: bool

    @classmethod
    def of(cls, data: DataConfig) -> Self:
        """Read the sampled columns: none without a sampler, for a tree sampler, or if one group is forced."""
        sampler = data.WhichOneof("sampler")
        nothing = sampler is None or sampler == "tdm_sampler" or data.force_base_data_group
        return cls(
            sampled=frozenset(() if nothing else getattr(data, sampler or "").attr_fields),
            rows_are_encoded=effective_fg_mode(data) in (FgMode.FG_NONE, FgMode.FG_BUCKETIZE),
        )

    def of_feature(self, source: FeatureSource) -> DataGroup:
        columns = (source.name,) if self.rows_are_encoded else source.columns_of_raw_rows
        if self.sampled.isdisjoint(columns):
            return DataGroup.BASE
        return DataGroup.NEG if source.kind in _OF_ONE_SIDE else DataGroup.CROSS_NEG


def effective_fg_mode(data: DataConfig) -> FgMode:
    """Return the kind of values in training rows; the older field fg_encoded wins where it is set."""
    if not data.HasField("fg_encoded"):
        return data.fg_mode
    if data.fg_encoded:
        return FgMode.FG_NONE
    return FgMode.FG_DAG if data.fg_threads > 0 else FgMode.FG_NORMAL

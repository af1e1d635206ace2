"""Tables of an embedding group, and the check that features which share a table agree on it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from exporter.config.refusals import check_name
from exporter.config.schema import (
    ROWS_OF_CHECKPOINT,
    DataGroup,
    Feature,
    FeatureGroup,
    GroupKind,
    IdMapKind,
    PipelineConfig,
    Pooling,
    TableConfig,
)
from exporter.dtypes import TableDtype
from exporter.errors import InvalidPipelineConfig
from exporter.redaction import name_first


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A read of one feature from a table for one group."""

    group: FeatureGroup
    feature: Feature
    table: TableConfig
    collection: tuple[
        DataGroup, GroupKind, int, bool
    ]  # module that holds the table; DEEP and WIDE share one for all widths, as DEEP, 0; maps are apart

    @property
    def path(self) -> tuple[str, ...]:
        """Path of the table in the checkpoint, below its embedding group."""
        tables = "embedding_bags" if self.collection[1] is GroupKind.DEEP else "embeddings"
        inner = ("_embedding_module",) if self.is_managed else ()
        return *self._module, *inner, tables, self.table.name

    @property
    def id_map_path(self) -> tuple[str, ...] | None:
        """Path of the map from ids to rows in the checkpoint; None where ids are row numbers."""
        match self.table.id_map:
            case None:
                return None
            case IdMapKind.ZCH:
                inner = "_managed_collision_collection", "_managed_collision_modules"
                return *self._module, *inner, self.table.name
            case IdMapKind.DYNAMICEMB:
                return *self._module, "dynamicemb", self.table.name

    @property
    def is_managed(self) -> bool:
        """Return whether the table is behind one of TorchRec's managed collision modules."""
        return self.collection[3]

    @property
    def _module(self) -> tuple[str, ...]:
        data_group, kind, width, managed = self.collection
        prefix = "mc_" if managed else ""
        if kind is GroupKind.DEEP:
            return "emb_impls", data_group, f"{prefix}ebc"
        return "seq_emb_impls", data_group, f"{prefix}ec_dict", str(width)

    @property
    def pooling(self) -> Pooling | None:
        """Pooling by the table itself; None where it returns the row of every id."""
        return self.feature.pooling if self.group.kind.is_row_vector else None


def lookups(groups: Iterable[FeatureGroup], features: Mapping[str, Feature]) -> Iterator[Lookup]:
    """Yield every read of a table by these groups, in their order; sequence groups must be among them."""
    for group in groups:
        for feature in (features[name] for name in group.features):
            if feature.table is None:
                continue
            table = group.table_of(feature)
            pooled = group.kind.is_row_vector
            kind, width = (GroupKind.DEEP, 0) if pooled else (GroupKind.SEQUENCE, table.dim)
            collection = (feature.data_group, kind, width, table.id_map is IdMapKind.ZCH)
            yield Lookup(group=group, feature=feature, table=table, collection=collection)


def remark_on_rounding(pipeline: PipelineConfig) -> tuple[str, ...]:
    """Return a sentence about sums of fp16 rows that TorchEasyRec's export rounds, where there are any."""
    features = {feature.name: feature for feature in pipeline.features}
    tables = {
        lookup.table.name
        for lookup in lookups(pipeline.embedded_groups, features)
        if lookup.table.dtype is TableDtype.FP16 and lookup.pooling and lookup.feature.value_dim != 1
    }
    if not tables:
        return ()
    return (
        f"Rows of {name_first(sorted(tables))}, trained in fp16, are summed in fp32 as in training; "
        "TorchEasyRec's own export rounds each sum to fp16.",
    )


def take_rows(pipeline: PipelineConfig, shapes: Mapping[str, Sequence[int]]) -> PipelineConfig:
    """Return the pipeline with the rows of tables whose size the config leaves to the checkpoint.

    `shapes` are those of weights, whose names may have any prefix. A table that is not among them stays as it
    is: it is found missing when the weights are loaded.
    """
    features = {feature.name: feature for feature in pipeline.features}
    for lookup in lookups(pipeline.embedded_groups, features):
        feature, weight = features[lookup.feature.name], "." + ".".join((*lookup.path, "weight"))
        if feature.table is None or feature.table.id_map is IdMapKind.DYNAMICEMB:
            continue  # the tables of a feature that is pooled and in a sequence differ in rows
        if feature.table.rows == ROWS_OF_CHECKPOINT:
            found = (shape[0] for name, shape in shapes.items() if f".{name}".endswith(weight))
            table = replace(feature.table, rows=next(found, ROWS_OF_CHECKPOINT))
            features[feature.name] = replace(feature, table=table)
    return replace(pipeline, features=tuple(features.values()))


def dynamic_tables(pipeline: PipelineConfig) -> dict[str, TableConfig]:
    """Return the tables that lie in files of dynamicemb, by their path below their embedding group."""
    features = {feature.name: feature for feature in pipeline.features}
    return {
        ".".join(lookup.path): lookup.table
        for lookup in lookups(pipeline.embedded_groups, features)
        if lookup.table.id_map is IdMapKind.DYNAMICEMB
    }


def check_tables(groups: Sequence[FeatureGroup], features: Iterable[Feature]) -> None:
    """Refuse names that tables cannot have, and features that share a table and disagree on what it is.

    Raises:
        InvalidPipelineConfig: naming the feature, or two that disagree.
    """
    shared: dict[tuple[object, str], Lookup] = {}
    by_name = {feature.name: feature for feature in features}
    looked_up = [inner for group in groups for inner in (group, *group.sequence_groups)]
    for lookup in lookups(looked_up, by_name):
        check_name(lookup.table.name, f"feature_configs: {lookup.feature.name}")
        first = shared.setdefault((lookup.collection, lookup.table.name), lookup)
        _check_shape(first, lookup)
        if first.pooling is not lookup.pooling:
            _invalid(
                lookup,
                f"{first.feature.name} and {lookup.feature.name} share table {lookup.table.name}, but one is "
                f"pooled by {first.pooling} and the other by {lookup.pooling}",
                hint="give both the same pooling",
            )
        if first.group.table_suffix != lookup.group.table_suffix:
            _invalid(
                lookup,
                f"with its embedding_name_suffix {lookup.group.table_suffix!r} and with that of group "
                f"{first.group.name}, {first.group.table_suffix!r}, two tables are named {lookup.table.name}",
                hint="change one of the suffixes, or the feature's embedding_name",
            )
    _check_one_data_group(groups, by_name)


def _check_shape(first: Lookup, other: Lookup) -> None:
    rows = {first.table.rows, other.table.rows} - {ROWS_OF_CHECKPOINT}
    if len(rows) <= 1 and replace(first.table, rows=other.table.rows) == other.table:
        return
    raise InvalidPipelineConfig(
        f"features {first.feature.name} and {other.feature.name} share table {other.table.name}, "
        f"but one has {first.table} and the other {other.table}",
        hint="give both the same embedding_dim, data_type and number of rows, or names of their own",
        where=f"feature_configs: {other.feature.name}",
    )


def _check_one_data_group(groups: Sequence[FeatureGroup], features: Mapping[str, Feature]) -> None:
    """Refuse a group with features of several data groups, whose rows differ in number."""
    for group in groups:
        members = sorted((features[name] for name in group.all_features), key=lambda f: f.data_group)
        parts = [
            (str(kind), [f.name for f in part]) for kind, part in groupby(members, lambda f: f.data_group)
        ]
        if len(parts) > 1:
            named = " and ".join(f"{name_first(names)} ({kind})" for kind, names in parts)
            raise InvalidPipelineConfig(
                f"feature group {group.name}: a sampler samples some of its features and not all: {named}",
                hint="name all or none in attr_fields, or train with data_config.force_base_data_group: true",
                where=f"feature_groups: {group.name}",
            )


def _invalid(lookup: Lookup, problem: str, *, hint: str) -> None:
    raise InvalidPipelineConfig(
        f"feature group {lookup.group.name}: {problem}",
        hint=hint,
        where=f"feature_groups: {lookup.group.name}",
    )

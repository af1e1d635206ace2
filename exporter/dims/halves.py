"""Plan the tensors between the halves of a TorchEasyRec folder, as its exporter names them. No torch here.

The sparse half returns what embedding groups look up. For the DEEP and WIDE groups of a data group together
these are the rows of all their tables, side by side, and all plain numbers, side by side; of each sequence
group its query, its lengths and its elements.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace

from exporter.config.features.tables import Lookup, lookups
from exporter.config.parse import parse_pipeline_config
from exporter.config.schema import DataGroup, Feature, FeatureGroup, PipelineConfig, TowerConfig
from exporter.dims.package_interface import plan_between
from exporter.dims.plan import DimPlan, PlannedTensor, batch_extent, group_tensors, plan_tensors
from exporter.options.layout import Layout
from exporter.spec import TowerName


@dataclass(frozen=True, kw_only=True)
class Column:
    """The place of a feature in a tensor of row vectors: the columns from `first` to before `end`."""

    feature: str
    table: str  # the name of its table; empty for plain numbers
    first: int
    end: int
    lookup: Lookup | None  # None: plain numbers
    is_read: bool = True  # by a group; numbers that none reads are zeros, whatever they are in the data


@dataclass(frozen=True, kw_only=True)
class RowVectors:
    """A tensor (rows of the call, width), in which the columns of several features lie side by side."""

    name: str
    columns: tuple[Column, ...]

    @property
    def width(self) -> int:
        return self.columns[-1].end

    def find(self, feature: str, table: str) -> Column | None:
        """Return the columns of a feature's rows of a table, or of its numbers if `table` is empty."""
        return next((each for each in self.columns if (each.feature, each.table) == (feature, table)), None)


@dataclass(frozen=True, kw_only=True)
class Halves:
    """All tensors between the halves of a tower."""

    plan: DimPlan  # in the order in which the sparse half returns them and the dense half takes them
    row_vectors: tuple[RowVectors, ...]

    def find(self, feature: str, table: str) -> tuple[RowVectors, Column]:
        """Return where the columns of a feature lie: see `RowVectors.find`."""
        found = ((vectors, vectors.find(feature, table)) for vectors in self.row_vectors)
        return next((vectors, column) for vectors, column in found if column is not None)


def plan_handover(tower: TowerConfig, layout: Layout, *, max_batch_size: int) -> DimPlan:
    """Plan the tensors from a tower's sparse to its dense package, in the order in which that takes them."""
    if layout is Layout.TORCHEASYREC:
        return plan_halves(tower, max_batch_size=max_batch_size).plan
    return plan_between(tower.pipeline, max_batch_size=max_batch_size)


def plan_halves(tower: TowerConfig, *, max_batch_size: int) -> Halves:
    """Plan what the sparse half of a tower of TorchEasyRec's returns.

    Lengths have the dtype of the first sequence feature's in their group: int32 if that holds plain numbers.
    """
    pipeline, row_vectors = tower.pipeline, tuple(_row_vectors(tower))
    tensors = [
        PlannedTensor(name=each.name, dtype="float32", shape=(batch_extent(max_batch_size), each.width))
        for each in row_vectors
    ]
    nested = [
        inner
        for group in pipeline.groups
        for inner in (group.sequence_groups if group.kind.is_row_vector else (group,))
    ]
    for groups in _by_data_group(nested, pipeline).values():
        planned = {group.name: group_tensors(group, pipeline, max_batch_size) for group in groups}
        found = {tensor.name: tensor for each in planned.values() for tensor in each}
        for part in (("query",), ("sequence_length", "sequence")):
            names = (f"{group.name}__{each}" for group in groups for each in part)
            tensors += [found[name] for name in names if name in found]
    return Halves(
        plan=_with_dtypes_of_lengths(plan_tensors(tensors, divided=False), nested, pipeline),
        row_vectors=row_vectors,
    )


def _with_dtypes_of_lengths(
    plan: DimPlan, groups: Iterable[FeatureGroup], pipeline: PipelineConfig
) -> DimPlan:
    """Return the plan with the dtypes that lengths have in the tower's inputs: they are not converted."""
    narrow = {
        f"{group.name}__sequence_length"
        for group in groups
        if (first := _first_sequence(group, pipeline)) and not first.is_sparse
    }
    inputs = tuple(replace(each, dtype="int32") if each.name in narrow else each for each in plan.inputs)
    return replace(plan, inputs=inputs)


def _row_vectors(tower: TowerConfig) -> Iterator[RowVectors]:
    pipeline = tower.pipeline
    features = {feature.name: feature for feature in pipeline.features}
    groups_of = _by_data_group([group for group in pipeline.groups if group.kind.is_row_vector], pipeline)
    exported = _pipeline_as_exported(tower)
    declared = _by_data_group([group for group in exported.groups if group.kind.is_row_vector], exported)
    for data_group, groups in groups_of.items():
        name = "__".join(group.name for group in declared[data_group])
        read = {each for group in groups for each in group.features}
        tables: dict[bool, dict[str, dict[str, Lookup]]] = {False: {}, True: {}}
        for lookup in lookups(groups, features):
            of_table = tables[lookup.is_managed].setdefault(lookup.table.name, {})
            of_table.setdefault(lookup.feature.name, lookup)
        for is_managed, suffix in ((False, "ebc"), (True, "mc_ebc")):
            found = [each for of_table in tables[is_managed].values() for each in of_table.values()]
            if found:
                columns = _columns([(each.feature, each.table.dim, each) for each in found])
                yield RowVectors(name=f"{name}__{suffix}", columns=columns)
        numbers = [
            feature
            for feature in exported.features
            if not (feature.is_sparse or feature.is_sequence) and feature.data_group == data_group
        ]
        if any(feature.name in read for feature in numbers):
            yield RowVectors(name=f"{name}__dense", columns=_numbers_of(numbers, features.keys()))


def _pipeline_as_exported(tower: TowerConfig) -> PipelineConfig:
    """Return what TorchEasyRec's exporter keeps: of a whole model also what the model never reads."""
    if tower.name is not TowerName.MODEL:
        return tower.pipeline
    return parse_pipeline_config(tower.pipeline.text)


def _columns(parts: Sequence[tuple[Feature, int, Lookup | None]]) -> tuple[Column, ...]:
    columns, end = [], 0
    for feature, width, lookup in parts:
        first, end = end, end + width
        table = lookup.table.name if lookup else ""
        columns.append(Column(feature=feature.name, table=table, first=first, end=end, lookup=lookup))
    return tuple(columns)


def _numbers_of(features: Sequence[Feature], read: Set[str]) -> tuple[Column, ...]:
    columns = _columns([(feature, feature.value_dim, None) for feature in features])
    return tuple(replace(column, is_read=column.feature in read) for column in columns)


def _by_data_group(
    groups: Iterable[FeatureGroup], pipeline: PipelineConfig
) -> dict[DataGroup, list[FeatureGroup]]:
    """Return the groups by the data group of their features, in the order in which these are first met."""
    found: dict[DataGroup, list[FeatureGroup]] = {}
    for group in groups:
        if group.all_features:
            found.setdefault(pipeline.feature(group.all_features[0]).data_group, []).append(group)
    return found


def _first_sequence(group: FeatureGroup, pipeline: PipelineConfig) -> Feature | None:
    members = (pipeline.feature(name) for name in group.features)
    return next((feature for feature in members if feature.is_sequence), None)

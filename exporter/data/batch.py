"""Batches made of real rows: one to trace with, several to verify with, and some that must be refused."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from torch import Tensor

from exporter.config.schema import Feature
from exporter.data.encode import read_features, to_tensors
from exporter.data.parquet import open_parquet
from exporter.data.ragged import Counts, Ragged, concatenate
from exporter.dims.plan import BATCH, DimPlan
from exporter.dims.sizes import sizes_of, trace_sizes, verification_batch_sizes

_ROWS_READ = 8192  # enough to fill large batches and meet long histories; bounds memory
_VALUES_READ = 1 << 24  # of all features; no more rows are read once they hold as many
_BATCH_VALUES = 1 << 26  # of all features, in a batch made of rows
_SEVERAL = 3  # rows of a small mixed batch, and values of a multi-valued row


@dataclass(frozen=True, kw_only=True, eq=False)
class NamedBatch:
    """One verification case: a tower's inputs, and a name for the property that they test."""

    name: str
    inputs: dict[str, Tensor]
    note: str = ""  # how the rows were changed, if at all


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Real rows of one tower's features, from which tensors are made on demand."""

    uri: str
    sha256: str  # digest of the files that were read
    features: Sequence[Feature]
    columns: Mapping[str, Ragged]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def tensors(self, plan: DimPlan) -> dict[str, Tensor]:
        return to_tensors(self.columns, self.features, plan)

    def select(self, rows: Sequence[int] | Counts) -> "Rows":
        return self._with({name: column.select(rows) for name, column in self.columns.items()})

    def row(self, index: int) -> "Rows":
        return self.select([index])

    def take(self, count: int) -> "Rows":
        """Return the first `count` rows, repeated from the start if there are fewer."""
        return self.within(count).select(np.arange(count) % len(self))

    def within(self, count: int) -> "Rows":
        """Return the rows, cut to their share of what fits into a batch of `count`, if they hold more.

        Long rows, repeated thousands of times, would fill the memory.
        """
        held = sum(len(column.values) for column in self.columns.values())
        if held * count <= _BATCH_VALUES * len(self):
            return self
        share = max(1, _BATCH_VALUES // (count * len(self.features)))
        columns = {f.name: self.columns[f.name] for f in [*self.sequences, *self.multivalued]}
        for feature in self.sequences:
            if feature.is_multivalued:
                columns[feature.name] = columns[feature.name].cut_elements(1)
        return self._with({name: column.cut(share) for name, column in columns.items()})

    @cached_property
    def longest(self) -> int:
        """The number of the row with the most events, over all its sequences."""
        events = np.zeros(len(self), dtype=np.int64)
        for feature in self.sequences:
            events += self.columns[feature.name].per_row
        return int(events.argmax())

    @property
    def sequences(self) -> list[Feature]:
        return [feature for feature in self.features if feature.is_sequence]

    @property
    def multivalued(self) -> list[Feature]:
        """The multi-valued features outside sequences."""
        return [feature for feature in self.features if feature.is_multivalued and not feature.is_sequence]

    def without_history(self) -> "Rows":
        """Return the rows with every sequence emptied."""
        return self.resize(self.sequences, np.zeros(len(self), dtype=np.int64))

    def resize(self, features: Sequence[Feature], per_row: Counts) -> "Rows":
        """Return the rows with other numbers of elements of these features, repeated from the real ones."""
        return self._with({f.name: _resize(self.columns[f.name], f, per_row) for f in features})

    def with_values_per_event(self, count: int) -> "Rows":
        """Return the rows with `count` values per event in the multi-valued features of their sequences."""
        columns = {f.name: self.columns[f.name] for f in self.sequences if f.is_multivalued}
        return self._with(
            {
                name: column.resize_elements(np.full_like(column.per_element, count))
                for name, column in columns.items()
            }
        )

    def with_other_weights(self) -> "Rows":
        """Return the rows with other weights of ids, each unlike its neighbours': some 0, some negative."""
        columns = {f.name: self.columns[f.name] for f in self.features if f.weighted}
        return self._with({name: column.with_other_weights() for name, column in columns.items()})

    def cut(self) -> "Rows":
        """Return the rows, cut to the numbers of events and values that the config declares."""
        columns = dict(self.columns)
        for feature in self.sequences:
            assert feature.sequence is not None
            if feature.sequence.length:
                columns[feature.name] = columns[feature.name].cut(feature.sequence.length)
            if feature.is_multivalued and feature.value_dim:
                columns[feature.name] = columns[feature.name].cut_elements(feature.value_dim)
        for feature in self.multivalued:
            if feature.value_dim:
                columns[feature.name] = columns[feature.name].cut(feature.value_dim)
        return replace(self, columns=columns)

    def _with(self, columns: Mapping[str, Ragged]) -> "Rows":
        return replace(self, columns={**self.columns, **columns})


def read_rows(
    uri: str, features: Sequence[Feature], *, limit: int = _ROWS_READ, most_values: int = _VALUES_READ
) -> Rows:
    """Read and check the first `limit` rows of `uri`, only the columns that `features` need.

    Fewer are read if their values are more than `most_values`.

    Raises:
        SourceNotFound: the URI names no parquet file.
        InvalidRows: a file, column or row cannot be used.
    """
    source = open_parquet(uri)
    parts: list[dict[str, Ragged]] = []
    files: dict[str, None] = {}
    missing = limit
    for batch in source.batches([feature.name for feature in features]):
        table = batch.table.slice(0, missing)
        parts.append(read_features(table, features, where=batch.where, first_row=batch.first_row))
        files[batch.where] = None
        missing -= table.num_rows
        most_values -= sum(len(column.values) for column in parts[-1].values())
        if not missing or most_values <= 0:
            break
    return Rows(
        uri=uri,
        sha256=source.sha256(files),
        features=tuple(features),
        columns={f.name: concatenate([part[f.name] for part in parts]) for f in features},
    )


def trace_inputs(rows: Rows, plan: DimPlan) -> dict[str, Tensor]:
    """Return inputs to trace with: real values, with dynamic sizes of at least 2 that all differ."""
    sizes = trace_sizes(plan)
    shaped = rows.take(sizes[BATCH])
    totals = _planned_totals(rows.sequences, plan, sizes)
    columns: dict[str, Ragged] = {}
    for feature in [*rows.sequences, *rows.multivalued]:
        column = shaped.columns[feature.name]
        total_values = sizes[_dim_of(feature, plan)]
        if feature.sequence is None:
            columns[feature.name] = _resize(column, feature, _spread(total_values, sizes[BATCH]))
            continue
        column = _resize(column, feature, _spread(totals[feature.sequence.name], sizes[BATCH]))
        if feature.is_multivalued:
            column = column.resize_elements(_spread(total_values, len(column.per_element)))
        columns[feature.name] = column
    return replace(shaped, columns={**shaped.columns, **columns}).tensors(plan)


def verification_batches(rows: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    """Yield the batches on which package and eager must agree: many sizes, and every edge of the features.

    Batches with a size that the plan does not allow are left out.
    """
    return (batch for batch in _batches(rows, plan) if not _exceeds_plan(batch.inputs, plan))


def _batches(rows: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    for size in verification_batch_sizes(plan):
        note = f"{len(rows)} rows, repeated" if size > len(rows) else ""
        yield named_batch(f"batch_{size}", rows.take(size), plan, note)
    few = rows.take(min(_SEVERAL, verification_batch_sizes(plan)[-1]))
    if rows.sequences:
        longest = rows.row(rows.longest)
        yield named_batch("longest_history", longest, plan)
        yield named_batch("full_history", _full(longest), plan, "as many events as the config declares")
        yield named_batch("empty_history", longest.without_history(), plan)
        yield named_batch("all_histories_empty", few.without_history(), plan)
        yield named_batch("empty_among_others", _empty_first(few), plan)
        yield from _one_sequence_changed(few, longest, plan)
        if any(feature.is_multivalued for feature in rows.sequences):
            yield named_batch("events_without_values", few.with_values_per_event(0), plan)
            yield named_batch("several_values_per_event", few.with_values_per_event(_SEVERAL).cut(), plan)
    if any(feature.weighted for feature in rows.features):
        yield named_batch("other_weights", few.with_other_weights(), plan)
    if rows.multivalued:
        none = np.zeros(1, dtype=np.int64)
        yield named_batch("no_values", rows.row(0).resize(rows.multivalued, none), plan)
        yield named_batch("several_values", few.resize(rows.multivalued, _several(few)).cut(), plan)


def _one_sequence_changed(few: Rows, longest: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    """Yield, for a model of several sequences, batches with one of them empty or of one element."""
    sequences = group_by_sequence(few.sequences)
    if len(sequences) == 1:
        return
    for name, siblings in sequences.items():
        none = np.zeros(len(few), dtype=np.int64)
        yield named_batch(f"empty:{name}", few.resize(siblings, none), plan)
        yield named_batch(f"one_element:{name}", longest.resize(siblings, np.ones(1, dtype=np.int64)), plan)


def contradicting_batches(rows: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    """Yield inputs that contradict themselves and must be refused; one of each kind per sequence."""
    inputs = trace_inputs(rows, plan)
    *others, last = plan.inputs_of(BATCH)
    if others:
        yield _with_changes(f"one_row_short:{last.name}", inputs, {last.name: inputs[last.name][:-1]})
    for siblings in group_by_sequence(rows.sequences).values():
        yield from _contradicting_sequence(siblings, inputs, plan)
    for feature in rows.features:
        lengths = plan.input_filled_with(f"{feature.name}.lengths")
        if feature.is_sparse and not feature.is_sequence and lengths is not None:
            longer = {lengths.name: _one_more(inputs[lengths.name])}
            yield _with_changes(f"lengths_exceed_values:{feature.name}", inputs, longer)
            break  # one feature stands for all


def _contradicting_sequence(
    siblings: Sequence[Feature], inputs: dict[str, Tensor], plan: DimPlan
) -> Iterator[NamedBatch]:
    lengths = {
        f.name: tensor.name for f in siblings if (tensor := plan.input_filled_with(f"{f.name}.lengths"))
    }
    longer = {name: _one_more(inputs[name]) for name in lengths.values()}
    yield _with_changes(f"lengths_exceed_values:{siblings[0].name}", inputs, longer)
    for feature in siblings:
        if per_event := plan.input_filled_with(f"{feature.name}.key_lengths"):
            more = {per_event.name: _one_more(inputs[per_event.name])}
            yield _with_changes(f"key_lengths_exceed_values:{feature.name}", inputs, more)
            break  # one feature stands for all
    *others, (counted, last) = lengths.items()
    if others:
        moved = inputs[last].clone()
        moved[0] -= 1
        moved[-1] += 1
        yield _with_changes(f"lengths_differ:{counted}", inputs, {last: moved})
    sharing = [f.name for f in siblings if not f.is_multivalued]
    values = plan.input_filled_with(f"{sharing[-1]}.values") if len(sharing) > 1 else None
    if values is not None:
        yield _with_changes(f"one_event_short:{sharing[-1]}", inputs, {values.name: inputs[values.name][:-1]})


def named_batch(name: str, rows: Rows, plan: DimPlan, note: str = "") -> NamedBatch:
    """Make a case of these rows, cut to the lengths that the config declares if they exceed the plan."""
    inputs = rows.tensors(plan)
    if _exceeds_plan(inputs, plan):
        inputs = rows.cut().tensors(plan)
        note = "; ".join(filter(None, [note, "histories cut to the declared length"]))
    return NamedBatch(name=name, inputs=inputs, note=note)


def _exceeds_plan(inputs: Mapping[str, Tensor], plan: DimPlan) -> bool:
    """Return whether any size is below or above the bounds of the plan."""
    sizes = sizes_of(plan, {name: tensor.shape for name, tensor in inputs.items()})
    bounds = ((size, plan.dim(name)) for name, size in sizes.items())
    return any(size < dim.low or (dim.high is not None and size > dim.high) for size, dim in bounds)


def _with_changes(name: str, inputs: dict[str, Tensor], changes: dict[str, Tensor]) -> NamedBatch:
    return NamedBatch(name=name, inputs={**inputs, **changes})


def _one_more(lengths: Tensor) -> Tensor:
    more = lengths.clone()
    more[-1] += 1
    return more


def _resize(column: Ragged, feature: Feature, per_row: Counts) -> Ragged:
    return column.resize(per_row, width=1 if feature.is_multivalued else feature.value_dim)


def _full(row: Rows) -> Rows:
    """Return the row with every sequence of its declared length, if one is declared."""
    columns = dict(row.columns)
    for feature in row.sequences:
        if feature.sequence is not None and feature.sequence.length:
            length = np.array([feature.sequence.length], dtype=np.int64)
            columns[feature.name] = _resize(columns[feature.name], feature, length)
    return replace(row, columns=columns)


def _empty_first(rows: Rows) -> Rows:
    emptied, rest = rows.row(0).without_history(), rows.select(range(1, len(rows)))
    columns = {name: concatenate([emptied.columns[name], rest.columns[name]]) for name in rows.columns}
    return replace(rows, columns=columns)


def _several(rows: Rows) -> Counts:
    return np.arange(len(rows), dtype=np.int64) + _SEVERAL - 1


def _spread(total: int, groups: int) -> Counts:
    """Return counts that differ by at most 1 and add up to `total`."""
    counts = np.full(groups, total // groups, dtype=np.int64)
    counts[: total % groups] += 1
    return counts


def group_by_sequence(features: Sequence[Feature]) -> dict[str, list[Feature]]:
    """Group features by the name of their sequence; the features of a sequence have equal lengths."""
    siblings: dict[str, list[Feature]] = {}
    for feature in features:
        assert feature.sequence is not None
        siblings.setdefault(feature.sequence.name, []).append(feature)
    return siblings


def _planned_totals(features: Sequence[Feature], plan: DimPlan, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the number of events of each sequence: the size of the dim that its features share."""
    totals = {}
    for name, siblings in group_by_sequence(features).items():
        per_event = "key_lengths" if siblings[0].is_multivalued else "values"
        totals[name] = sizes[_dim_of(siblings[0], plan, tensor=per_event)]
    return totals


def _dim_of(feature: Feature, plan: DimPlan, *, tensor: str = "values") -> str:
    """Return the dim on axis 0 of one of a feature's tensors."""
    planned = plan.input_filled_with(f"{feature.name}.{tensor}")
    axis = planned.shape[0] if planned else None
    assert isinstance(axis, str)
    return axis

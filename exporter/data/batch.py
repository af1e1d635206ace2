"""Batches made of real rows: one to trace with, several to verify with, and some that must be refused."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from exporter.config.schema import Feature
from exporter.data.counts import spread
from exporter.data.ragged import Ragged, concatenate
from exporter.data.remainders import Remainders
from exporter.data.rows import (
    NamedBatch,
    Rows,
    add_sizes,
    dim_of,
    exceeds_plan,
    group_by_sequence,
    named_batch,
    resize,
)
from exporter.data.stretch import stretched_batches
from exporter.dims.plan import BATCH, DimPlan
from exporter.dims.sizes import trace_sizes, verification_batch_sizes

_FEW = 3  # rows of a small mixed batch
_CHANGED_ALONE = 6  # sequences of which each is changed alone; of more, several at a time


def trace_inputs(rows: Rows, plan: DimPlan) -> dict[str, Tensor]:
    """Return inputs to trace with: real values, with dynamic sizes of at least 2 that all differ."""
    sizes = trace_sizes(plan)
    shaped = rows.take(sizes[BATCH])
    totals = _planned_totals(rows.sequences, plan, sizes)
    columns: dict[str, Ragged] = {}
    for feature in [*rows.sequences, *rows.multivalued]:
        column = shaped.columns[feature.name]
        total_values = sizes[dim_of(feature, plan)]
        if feature.sequence is None:
            columns[feature.name] = resize(column, feature, spread(total_values, sizes[BATCH]))
            continue
        column = resize(column, feature, spread(totals[feature.sequence.name], sizes[BATCH]))
        if feature.is_multivalued:
            column = column.resize_elements(spread(total_values, len(column.per_element)))
        columns[feature.name] = column
    return replace(shaped, columns={**shaped.columns, **columns}).tensors(plan)


def verification_batches(
    rows: Rows, plan: DimPlan, remainders: Remainders | None = None
) -> Iterator[NamedBatch]:
    """Yield the batches on which package and eager must agree: many sizes, and every edge of the features.

    Batches with a size that the plan does not allow are left out. Those that may have any sizes are given
    what `remainders` lack, to which all are added.
    """
    remainders = Remainders() if remainders is None else remainders
    for batch in _batches(rows, plan, remainders):
        if not exceeds_plan(batch.inputs, plan):
            add_sizes(remainders, batch.inputs, plan)
            yield batch


def _batches(rows: Rows, plan: DimPlan, remainders: Remainders) -> Iterator[NamedBatch]:
    for size in verification_batch_sizes(plan):
        note = f"{len(rows)} rows, repeated" if size > len(rows) else ""
        yield named_batch(f"batch_{size}", rows.take(size), plan, note)
    if rows.sequences:
        few = rows.take(min(_FEW, verification_batch_sizes(plan)[-1]))
        yield named_batch("all_histories_empty", few.without_history(), plan)
        yield named_batch("empty_among_others", _empty_first(few), plan)
        yield from _some_sequences_changed(few, rows.row(rows.longest), plan)
    yield from stretched_batches(rows, plan, remainders)


def _some_sequences_changed(few: Rows, longest: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    """Yield, for a model of several sequences, batches with one of them empty or of one element.

    Of many sequences half are changed at a time, so that for any two there is a batch in which one is changed
    and the other is not.
    """
    sequences = group_by_sequence(few.sequences)
    if len(sequences) == 1:
        return
    for label, names in _choose_some(list(sequences)).items():
        changed = [feature for name in names for feature in sequences[name]]
        note = "" if len(names) == 1 else ", ".join(names)
        none = np.zeros(len(few), dtype=np.int64)
        yield named_batch(f"empty:{label}", few.resize(changed, none), plan, note)
        one = np.ones(1, dtype=np.int64)
        yield named_batch(f"one_element:{label}", longest.resize(changed, one), plan, note)


def _choose_some(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the sequences to change together: each alone, or by a digit of their numbers."""
    if len(names) <= _CHANGED_ALONE:
        return {name: [name] for name in names}
    return {
        f"half_{digit}_{value}": [name for at, name in enumerate(names) if at >> digit & 1 == value]
        for digit in range((len(names) - 1).bit_length())
        for value in (0, 1)
    }


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


def _with_changes(name: str, inputs: dict[str, Tensor], changes: dict[str, Tensor]) -> NamedBatch:
    return NamedBatch(name=name, inputs={**inputs, **changes})


def _one_more(lengths: Tensor) -> Tensor:
    more = lengths.clone()
    more[-1] += 1
    return more


def _empty_first(rows: Rows) -> Rows:
    emptied, rest = rows.row(0).without_history(), rows.select(range(1, len(rows)))
    columns = {name: concatenate([emptied.columns[name], rest.columns[name]]) for name in rows.columns}
    return replace(rows, columns=columns)


def _planned_totals(features: Sequence[Feature], plan: DimPlan, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the number of events of each sequence: the size of the dim that its features share."""
    return {
        name: sizes[dim_of(siblings[0], plan, elements=True)]
        for name, siblings in group_by_sequence(features).items()
    }

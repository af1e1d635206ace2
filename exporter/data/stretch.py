"""Batches whose rows hold far more, or less, than real rows do: every dim is tried well beyond them.

| case | proves |
| --- | --- |
| `empty_row` | one row, and every dim as small as the plan allows |
| `no_values` | rows and events, and no value in any multi-valued feature |
| `low_counts` | rows of 0 to 17 values or events; ids at both ends of tables; weights and numbers of no row |
| `middle_counts` | rows of 18 to 129 |
| `high_counts` | rows of 255 to 4,097, or to more than four times what real rows hold |
| `full_history` | one row with as much as a row may hold; `full_row` without sequences |
| `full_batch` | the most rows, equally long, with as much in all as work allows |
| `held_counts` | as `low_counts`, in rows that hold as much as real ones at most, or as is declared |

Up to what the config declares where it declares it. The counts are in three cases, so that the sums over
thousands of values do not hide what is wrong with twelve. Numbers of rows, and of values and events in all,
are chosen for the remainders that other cases lack (`remainders.py`); before, the rows were 17, 33 and 65,
which leave a rest of one each, as a random case of more than 64 rows does now. Two multi-valued features
never have the same counts in all rows. Dense values are four times as large as any of the rows, the negative
of that, 0, and very small. A model may raise, or compute NaN, for these, and in rows that are longer than
real ones where its config declares no maximum: those cases are left out, and `held_counts`, which is made
where there are such, is not. Earlier cases are proved by these:

| earlier case | proved by |
| --- | --- |
| `several_values`, `several_values_per_event`, `none_one_and_two`, `other_weights` | `low_counts` |
| `one_long_among_short` | `middle_counts` and `high_counts`, which end at the declared length |
| `longest_history` | `full_history`, which is longer; as trained in any `batch_` with that row |
| `empty_history` | `empty_row` |
| `events_without_values` | `no_values` |
| `equal_histories` | `full_batch` |
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import sqrt

import numpy as np

from exporter.config.schema import Feature
from exporter.data import counts as ladder
from exporter.data.counts import climb, limit_total, raise_total, spread
from exporter.data.ids import probe_ids
from exporter.data.ragged import Counts, Ragged
from exporter.data.remainders import Remainders
from exporter.data.rows import NamedBatch, Rows, dim_of, group_by_sequence, longest_of, resize
from exporter.dims.plan import BATCH, DimPlan, DynamicDim

_FEW = 3  # rows of a small batch
# Numbers of rows of the cases of counts, of which one is taken: beyond the ladder, with room for small ones.
_SIZES = (range(21, 33), range(33, 49), range(17, 33))
_TOP = 4097  # of values or events in a row, where nothing bounds them and real rows hold few
_FEW_EVENTS = 64  # that a row may be given for a total
_TOP_EVENTS = 1025  # of events: what attends to all of them takes time in their square
_TIMES = 4  # how far beyond real rows a row goes
_TOTAL = 65_537  # values of all rows, where nothing bounds them
_LOOKED_UP = 1 << 25  # numbers that a case looks up in tables, about: 128 MiB in fp32
_LEAST_AFFORDABLE = 129
_PAIRS = 3 << 22  # pairs of events of the same row that a case has, about
_UNKNOWN_WIDTH = 64  # of a declared table, which says its rows only


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Counts that a case has to choose: of a feature's values per row or event, or of events per row."""

    size: int  # of how many rows, or events
    most: int  # that each may hold
    in_all: int | None  # that all may hold together
    number: int  # of the feature or sequence, so that no two are counted alike


Choose = Callable[[Wanted], Counts]


@dataclass(frozen=True, kw_only=True, eq=False)
class Stretcher:
    """Stretches rows to any counts, within what the plan and a bound on the work allow."""

    rows: Rows
    plan: DimPlan
    remainders: Remainders = field(default_factory=Remainders)  # of the sizes of other cases
    goes_beyond: bool = True  # what real rows hold, where nothing is declared
    completes: bool = False  # raises the last counts to totals whose remainders are missing

    def batch(
        self,
        name: str,
        size: int,
        *,
        counts: Choose,
        events: Choose | None = None,
        inner: Choose | None = None,
        note: str = "",
        other_weights: bool = False,
    ) -> NamedBatch:
        """Return `size` rows with these counts, and with ids of all parts of every table.

        Values are those of the rows, over and over. Events of a row, and values of an event, are counted as
        values of a row are, unless `events` and `inner` do.
        """
        taken = self.rows.take(size)
        columns: dict[str, Ragged] = {}
        is_beyond = False
        siblings = group_by_sequence(self.rows.sequences).values()
        for number, features in enumerate(siblings):
            dim = self.plan.dim(dim_of(features[0], self.plan, elements=True))
            most = self.most_events(features[0])
            lengths = (events or counts)(Wanted(size=size, most=most, in_all=dim.high, number=number))
            lengths = raise_total(limit_total(lengths, dim.high), dim.low)
            lengths = self._complete(dim, lengths, max(int(lengths.max()), min(most, _FEW_EVENTS)))
            is_beyond |= _exceeds(lengths, self._undeclared_events(features[0]))
            for feature in features:
                columns[feature.name] = resize(taken.columns[feature.name], feature, lengths)
        for number, feature in enumerate(self.rows.every_multivalued):
            column = columns.get(feature.name, taken.columns[feature.name])
            choose = (inner or counts) if feature.is_sequence else counts
            groups = len(column.per_element) if feature.is_sequence else size
            dim = self.plan.dim(dim_of(feature, self.plan))
            most = self.most_values(feature)
            chosen = choose(Wanted(size=groups, most=most, in_all=dim.high, number=number))
            chosen = self._complete(dim, limit_total(chosen, dim.high), most)
            is_beyond |= _exceeds(chosen, self._undeclared_values(feature))
            columns[feature.name] = (
                column.resize_elements(chosen) if feature.is_sequence else resize(column, feature, chosen)
            )
        stretched = self._with_probes(replace(taken, columns={**taken.columns, **columns}))
        if other_weights:
            stretched = stretched.with_other_weights()
            if self.goes_beyond and self.numbers:
                stretched, is_beyond = stretched.with_other_numbers(self.numbers, self.rows), True
        return NamedBatch(name=name, inputs=stretched.tensors(self.plan), note=note, beyond_rows=is_beyond)

    def most_values(self, feature: Feature) -> int:
        """Return the most values that a row, or an event, of a multi-valued feature is tried with."""
        held = self._held_values(feature)
        if feature.value_dim or not self.goes_beyond:
            return max(feature.value_dim or 0, int(held.max(initial=0)))
        return _beyond(held, _TOP) if _TOP * self._width <= _LOOKED_UP else _beyond(held, self._affordable)

    def most_events(self, feature: Feature) -> int:
        """Return the most events that a row of a sequence is tried with."""
        assert feature.sequence is not None
        held = self.rows.columns[feature.name].per_row
        if feature.sequence.length or not self.goes_beyond:
            return max(feature.sequence.length or 0, int(held.max(initial=0)))
        return _beyond(held, _TOP_EVENTS)

    @property
    def numbers(self) -> list[Feature]:
        """The dense features whose values may be any number, as far as is declared: those of floats."""
        planned = ((each, self.plan.input_filled_with(f"{each.name}.values")) for each in self.rows.dense)
        return [each for each, tensor in planned if tensor is not None and tensor.dtype.startswith("float")]

    def _complete(self, dim: DynamicDim, counts: Counts, most: int) -> Counts:
        if not self.completes:
            return counts
        return self.remainders.complete(dim.name, counts, most, dim.high)

    @property
    def has_undeclared(self) -> bool:
        """Return whether rows may hold any number of something, as the config declares no maximum."""
        events = (self._undeclared_events(feature) for feature in self.rows.sequences)
        values = (self._undeclared_values(feature) for feature in self.rows.every_multivalued)
        return any(held is not None for held in (*events, *values))

    def _undeclared_events(self, feature: Feature) -> Counts | None:
        """Return how many events real rows have; None where the config declares the most."""
        assert feature.sequence is not None
        return None if feature.sequence.length else self.rows.columns[feature.name].per_row

    def _undeclared_values(self, feature: Feature) -> Counts | None:
        """Return how many values real rows, or events, have; None where the config declares the most."""
        return None if feature.value_dim else self._held_values(feature)

    def _held_values(self, feature: Feature) -> Counts:
        column = self.rows.columns[feature.name]
        return column.per_element if feature.is_sequence else column.per_row

    def in_all(self, most: int, groups: int) -> int:
        """Return how many values as many rows or events have together in the largest batch."""
        total = self._affordable if most < _TOP else min(_TOTAL, self._affordable)
        return min(most * groups, max(total, groups))

    @cached_property
    def largest(self) -> int:
        """The largest number of rows."""
        high = self.plan.dim(BATCH).high
        assert high is not None
        return high

    def choose_longest(self, feature: Feature, lengths: Iterable[int]) -> int:
        """Return one of these lengths, ascending, for the longest row of a sequence: others are padded to it.

        It leaves a remainder that no other case's longest row has left, else it is the last.
        """
        dim = longest_of(dim_of(feature, self.plan, elements=True))
        found = [int(length) for length in lengths]
        return (self.remainders.choose(dim, found) or found)[-1]

    def affordable_events(self, most: int, rows: int) -> int:
        """Return how many events each of `rows` rows may have, for the pairs of them that work allows."""
        share = sqrt(_PAIRS / max(rows * self._pairs, 1))
        return most if share >= 1 else max(1, int(most * share))

    @cached_property
    def _pairs(self) -> int:
        """The pairs of events of a row that is as long as may be."""
        sequences = group_by_sequence(self.rows.sequences).values()
        return sum(self.most_events(siblings[0]) ** 2 for siblings in sequences)

    @cached_property
    def _affordable(self) -> int:
        return max(_LOOKED_UP // self._width, _LEAST_AFFORDABLE)

    @cached_property
    def _width(self) -> int:
        """The numbers that one value of every multi-valued feature looks up."""
        return sum(feature.looked_up_width or _UNKNOWN_WIDTH for feature in self.rows.every_multivalued) or 1

    def _with_probes(self, rows: Rows) -> Rows:
        columns: dict[str, Ragged] = {}
        for feature in rows.features:
            if feature.is_sparse:
                column = rows.columns[feature.name]
                ids = probe_ids(feature, len(column.values), rows.known_ids)
                columns[feature.name] = replace(column, values=ids)
        return replace(rows, columns={**rows.columns, **columns})


def stretched_batches(rows: Rows, plan: DimPlan, remainders: Remainders) -> Iterator[NamedBatch]:
    """Yield the cases of this module's table, with the remainders that sizes of other cases lack."""
    stretcher = Stretcher(rows=rows, plan=plan, remainders=remainders)
    yield _lowest(stretcher)
    if rows.every_multivalued:
        yield _without_values(stretcher)
    steps = (ladder.LOW, ladder.MIDDLE, ladder.high_counts(_highest(stretcher)))
    names = ("low_counts", "middle_counts", "high_counts")
    before = 0
    for name, step, sizes in zip(names, steps, _SIZES, strict=True):
        if not step or (before and before >= _highest(stretcher)):
            break
        yield from _climbing(stretcher, name, step, sizes)
        before = step[-1]
    if rows.sequences or rows.every_multivalued:
        yield _full(stretcher)
        yield _largest(stretcher)
    if stretcher.has_undeclared or stretcher.numbers:
        held = replace(stretcher, goes_beyond=False)
        yield from _climbing(held, "held_counts", (*ladder.LOW, _highest(held) + 1), _SIZES[0])


def batches_beyond(rows: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    """Yield, where a package refuses more than was tried, a row that holds one more, and rows that all do.

    Rows hold one more together where each of them may hold as many.
    """
    if not plan.row_limits:
        return
    unbounded = tuple(dim if dim.name == BATCH else replace(dim, high=None) for dim in plan.dims)
    stretcher = Stretcher(rows=rows, plan=replace(plan, dims=unbounded))
    for number, (name, siblings) in enumerate(group_by_sequence(rows.sequences).items()):
        dim = plan.dim(dim_of(siblings[0], plan, elements=True))
        for case, size in _sizes_beyond(dim, stretcher):
            beyond = _one_beyond(number, dim, size)
            yield stretcher.batch(f"{case}:{name}", size, counts=_one, events=beyond)
    for number, feature in enumerate(rows.every_multivalued):
        dim = plan.dim(dim_of(feature, plan))
        for case, size in _sizes_beyond(dim, stretcher):
            beyond = _one_beyond(number, dim, size)
            outer, inner = (_one, beyond) if feature.is_sequence else (beyond, _one)
            yield stretcher.batch(f"{case}:{feature.name}", size, counts=outer, events=_one, inner=inner)


def _sizes_beyond(dim: DynamicDim, stretcher: Stretcher) -> Iterator[tuple[str, int]]:
    """Yield the numbers of rows that may hold one more than is accepted, with the names of their cases."""
    assert dim.share is not None and dim.share.refused_above is not None and dim.high is not None
    yield "beyond", 1
    if dim.high < dim.share.refused_above * stretcher.largest:
        yield "beyond_total", stretcher.largest


def _one_beyond(number: int, dim: DynamicDim, rows: int) -> Choose:
    """Return a choice of one more than is accepted, for the feature or sequence of this number."""

    def choose(wanted: Wanted) -> Counts:
        if wanted.number != number:
            return _one(wanted)
        assert dim.share is not None and dim.share.refused_above is not None and dim.high is not None
        most = dim.share.refused_above if rows == 1 else dim.high
        return spread(most + 1, wanted.size)

    return choose


def _one(wanted: Wanted) -> Counts:
    return np.full(wanted.size, min(wanted.most, 1), dtype=np.int64)


def _highest(stretcher: Stretcher) -> int:
    """Return the most values or events that any row is tried with."""
    rows = stretcher.rows
    values = (stretcher.most_values(feature) for feature in rows.every_multivalued)
    events = (stretcher.most_events(feature) for feature in rows.sequences)
    return max((*values, *events), default=1)


def _none(wanted: Wanted) -> Counts:
    return np.zeros(wanted.size, dtype=np.int64)


def _lowest(stretcher: Stretcher) -> NamedBatch:
    return stretcher.batch("empty_row", 1, counts=_none)


def _without_values(stretcher: Stretcher) -> NamedBatch:
    def one_two_three(wanted: Wanted) -> Counts:
        return np.arange(1, wanted.size + 1).clip(0, wanted.most)

    return stretcher.batch(
        "no_values", min(_FEW, stretcher.largest), counts=_none, events=one_two_three, inner=_none
    )


def _climbing(stretcher: Stretcher, name: str, step: tuple[int, ...], sizes: range) -> Iterator[NamedBatch]:
    """Yield a case with a row of every count, or several where that is more rows than a call may have."""
    longest_ladder = len(step) + 2
    enough = [size for size in sizes if size >= longest_ladder] or [longest_ladder]
    size = (stretcher.remainders.choose(BATCH, enough) or enough)[0]
    for first in range(0, size, stretcher.largest):
        if first >= longest_ladder:
            return  # what is left are small counts
        end = min(first + stretcher.largest, size)

        def some(wanted: Wanted, first: int = first, end: int = end) -> Counts:
            return climb(step, wanted.most, size, wanted.number)[first:end]

        def events(wanted: Wanted, some: Choose = some) -> Counts:
            return some(replace(wanted, most=stretcher.affordable_events(wanted.most, 1)))

        def inner(wanted: Wanted) -> Counts:
            return climb(step, wanted.most, wanted.size, wanted.number)

        # Where a case has a part of the ladder, no count of it may be raised.
        yield replace(stretcher, completes=size <= stretcher.largest).batch(
            f"{name}:{first}" if first else name,
            end - first,
            counts=some,
            events=events,
            inner=inner,
            note=f"{step[0]} to {step[-1]:,} values or events per row, as far as declared",
            other_weights=step[0] == 0,
        )


def _full(stretcher: Stretcher) -> NamedBatch:
    return stretcher.batch(
        "full_history" if stretcher.rows.sequences else "full_row",
        1,
        counts=lambda wanted: climb((wanted.most,), wanted.most, wanted.size),
        note="as many events and values as the config declares, or well beyond the rows",
    )


def lighter_full_batch(rows: Rows, plan: DimPlan, share: float) -> Iterator[NamedBatch]:
    """Yield the largest stretched batch with a `share` of the events that as many rows have as they are."""
    siblings = group_by_sequence(rows.sequences).values()
    if siblings:
        usual = sum(float(rows.columns[features[0].name].per_row.mean()) for features in siblings)
        yield _largest(Stretcher(rows=rows, plan=plan), longest=max(1, int(share * usual / len(siblings))))


def _largest(stretcher: Stretcher, longest: int | None = None) -> NamedBatch:
    def values(wanted: Wanted) -> Counts:
        in_all = stretcher.in_all(wanted.most, wanted.size)
        return spread(in_all, max(wanted.size, 1))[: wanted.size]

    def events(wanted: Wanted) -> Counts:
        each = min(stretcher.affordable_events(wanted.most, wanted.size), longest or wanted.most)
        allowed = each if wanted.in_all is None else min(each, wanted.in_all // wanted.size)
        return np.full(wanted.size, allowed, dtype=np.int64)

    note = "as many events and values in all as the config declares, as far as work allows"
    return stretcher.batch("full_batch", stretcher.largest, counts=values, events=events, note=note)


def _beyond(held: Counts, least: int) -> int:
    """Return a count of `least`, or beyond what rows hold: a power of two, and one more."""
    longest = int(held.max(initial=0))
    return max(
        least, 2 ** (max(_TIMES * longest, 1) - 1).bit_length() + 1 if longest > least // _TIMES else 0
    )


def _exceeds(counts: Counts, held: Counts | None) -> bool:
    return held is not None and int(counts.max(initial=0)) > int(held.max(initial=0))

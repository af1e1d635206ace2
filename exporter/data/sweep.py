"""Batches of random sizes: as rows are, and stretched beyond them."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from exporter.data.batch import verification_batches
from exporter.data.counts import draw
from exporter.data.ragged import Counts
from exporter.data.rows import NamedBatch, Rows, exceeds_plan, group_by_sequence, named_batch
from exporter.data.stretch import Stretcher, Wanted
from exporter.dims.plan import BATCH, DimPlan
from exporter.dims.sizes import verification_batch_sizes

_SEED = 20  # the same random sizes in every export, so that a failure can be reproduced
_FIRST_OCTAVE = 8  # smaller numbers of rows are among the chosen cases
_VECTORS = (8, 16)  # numbers that compiled code computes at once: what is left over takes another path
_MOST_DRAWN = 1 << 14  # values or events of all rows of a stretched batch


def agreeing_batches(rows: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    """Yield the cases on which package and eager must agree: chosen ones, then random ones.

    There is a size between any two powers of 2: compiled code takes other paths at other orders of magnitude.
    """
    yield from verification_batches(rows, plan)
    generator = np.random.default_rng(_SEED)
    yield from _draw_batches(rows, plan, generator, _draw_octaves(generator, plan), f"seed {_SEED}")


def sweep(rows: Rows, plan: DimPlan, *, seed: int, count: int) -> Iterator[NamedBatch]:
    """Yield `count` batches of random sizes, the same for one seed; no size comes twice before all have.

    Every other one is stretched: it has any counts of values and events that a row may have.
    """
    generator = np.random.default_rng(seed)
    yield from _draw_batches(rows, plan, generator, _draw_sizes(generator, plan, count), f"seed {seed}")


def _draw_batches(
    rows: Rows, plan: DimPlan, generator: np.random.Generator, sizes: Sequence[int], origin: str
) -> Iterator[NamedBatch]:
    stretcher = Stretcher(rows=rows, plan=plan)
    for number, size in enumerate(sizes):
        name, note = f"random_{number}", f"{size} rows, {origin}"
        if number % 2:
            batch = _draw_stretched(stretcher, generator, name, size, note)
        else:
            batch = named_batch(name, _draw_rows(rows, generator, size), plan, note)
        if not exceeds_plan(batch.inputs, plan):
            yield batch


def _draw_octaves(generator: np.random.Generator, plan: DimPlan) -> list[int]:
    """Draw one number of rows between any two powers of 2, of those that no chosen case has.

    Together they leave every rest where vectors of 8 are made, and as many rests of 16 as there is room for.
    """
    largest, low = plan.dim(BATCH).high, _FIRST_OCTAVE
    assert largest is not None
    chosen, drawn = set(verification_batch_sizes(plan)), list[int]()
    while low < largest:
        if sizes := [size for size in range(low, min(2 * low, largest)) if size not in chosen]:
            drawn.append(int(generator.choice(_with_new_rest(sizes, chosen | {*drawn}))))
        low *= 2
    return drawn


def _with_new_rest(sizes: Sequence[int], others: Collection[int]) -> Sequence[int]:
    """Return the sizes that leave another rest in a vector than all others do, if there are any."""
    for width in _VECTORS:
        rests = {size % width for size in others}
        if found := [size for size in sizes if size % width not in rests]:
            return found
    return sizes


def _draw_sizes(generator: np.random.Generator, plan: DimPlan, count: int) -> list[int]:
    """Draw numbers of rows: all orders of magnitude evenly, none twice while others are left.

    Sizes that a chosen case has anyway come last.
    """
    largest = plan.dim(BATCH).high
    assert largest is not None
    chosen = set(verification_batch_sizes(plan))
    others = [size for size in range(1, largest + 1) if size not in chosen] or [largest]
    drawn: list[int] = []
    while len(drawn) < count:
        left = np.array([size for size in others if size not in drawn] or others)
        drawn += _draw_evenly(generator, left, min(count - len(drawn), len(left)))
        if len(drawn) >= len(others):
            others = list(range(1, largest + 1))
    return drawn


def _draw_evenly(generator: np.random.Generator, sizes: Counts, count: int) -> list[int]:
    """Draw `count` of these ascending sizes, one from each of as many parts of equal weight; shuffled."""
    left, drawn = sizes, []
    for missing in range(count, 0, -1):
        weights = np.cumsum(1 / left)
        place = int(np.searchsorted(weights, generator.uniform(0, weights[-1] / missing)))
        place = min(place, len(left) - missing)
        drawn.append(int(left[place]))
        left = left[place + 1 :]
    generator.shuffle(drawn)
    return drawn


def _draw_rows(rows: Rows, generator: np.random.Generator, size: int) -> Rows:
    pool = rows.within(size)
    drawn = pool.select(generator.integers(len(pool), size=size))
    for siblings in group_by_sequence(rows.sequences).values():
        # Lengths come from other rows than the values, so that sequences are combined in new ways.
        observed = pool.columns[siblings[0].name].per_row
        drawn = drawn.resize(siblings, generator.choice(observed, size=size))
    return drawn


def _draw_stretched(
    stretcher: Stretcher, generator: np.random.Generator, name: str, size: int, note: str
) -> NamedBatch:
    def counts(wanted: Wanted) -> Counts:
        return _limit(draw(generator, wanted.most, wanted.size))

    def events(wanted: Wanted) -> Counts:
        return draw(generator, stretcher.affordable_events(wanted.most, size), size)

    return stretcher.batch(name, size, counts=counts, events=events, note=f"{note}, stretched")


def _limit(counts: Counts) -> Counts:
    """Return the counts, those from the place on where all add up to too many cut to 3."""
    return np.where(np.cumsum(counts) <= _MOST_DRAWN, counts, counts.clip(0, 3))

"""Batches of random sizes: as rows are, and stretched beyond them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from exporter.data.batch import verification_batches
from exporter.data.counts import draw
from exporter.data.lighter import longest_within
from exporter.data.ragged import Counts
from exporter.data.remainders import Remainders, is_edge
from exporter.data.rows import NamedBatch, Rows, add_sizes, exceeds_plan, group_by_sequence, named_batch
from exporter.data.stretch import Stretcher, Wanted
from exporter.dims.plan import BATCH, DimPlan
from exporter.dims.sizes import verification_batch_sizes

_SEED = 20  # the same random sizes in every export, so that a failure can be reproduced
_RANDOM = "random_"  # what names of random cases begin with
_OF_LARGEST = 4  # of the time for the largest batch, where that is bounded, one of them takes a quarter
_FIRST_POWER = 3  # smaller numbers of rows than 8 are among the chosen cases
_FILLING = range(16, 32)  # numbers of rows with every rest of vectors
_MOST_DRAWN = 1 << 14  # values or events of all rows of a stretched batch


def agreeing_batches(rows: Rows, plan: DimPlan, *, share: float = inf) -> Iterator[NamedBatch]:
    """Yield the cases on which package and eager must agree: chosen ones, then random ones.

    No random one has more than a `share` of the events that the largest batch has of rows as they are.

    There is a size between any two powers of 2: compiled code takes other paths at other orders of magnitude.
    Numbers of rows, and of values and events in all, leave the remainders that `Remainders` tells of.
    """
    remainders, generator = Remainders(), np.random.default_rng(_SEED)
    octaves = _draw_octaves(generator, plan, remainders)
    yield from verification_batches(rows, plan, remainders)
    sizes = [*octaves, *_fill_rests(plan, remainders)]
    stretcher = Stretcher(rows=rows, plan=plan, remainders=remainders, completes=True)
    yield from _draw_batches(stretcher, generator, sizes, f"seed {_SEED}", share)


def lighter_random_batches(rows: Rows, plan: DimPlan, share: float) -> Iterator[NamedBatch]:
    """Yield the random cases with as many rows, each with a quarter of a `share` of the largest one's events.

    They prove numbers of rows; the batches in the place of the largest one have the share of its events.
    """
    if rows.sequences:
        batches = agreeing_batches(rows, plan, share=share / _OF_LARGEST)
        yield from (batch for batch in batches if batch.name.startswith(_RANDOM))


def sweep(rows: Rows, plan: DimPlan, *, seed: int, count: int) -> Iterator[NamedBatch]:
    """Yield `count` batches of random sizes, the same for one seed; no size comes twice before all have.

    Every other one is stretched: it has any counts of values and events that a row may have.
    """
    generator = np.random.default_rng(seed)
    sizes = _draw_sizes(generator, plan, count)
    stretcher = Stretcher(rows=rows, plan=plan, completes=True)
    yield from _draw_batches(stretcher, generator, sizes, f"seed {seed}", inf)


def _draw_batches(
    stretcher: Stretcher, generator: np.random.Generator, sizes: Sequence[int], origin: str, share: float
) -> Iterator[NamedBatch]:
    plan = stretcher.plan
    for number, size in enumerate(sizes):
        name, note = f"{_RANDOM}{number}", f"{size} rows, {origin}"
        allowed = share * stretcher.largest / size  # of the events that as many rows have as they are
        if number % 2:
            batch = _draw_stretched(stretcher, generator, size, allowed)
        else:
            batch = named_batch(_RANDOM, _draw_rows(stretcher, generator, size, allowed), plan)
        if not exceeds_plan(batch.inputs, plan):
            add_sizes(stretcher.remainders, batch.inputs, plan)
            notes = (note, "stretched" if number % 2 else "", batch.note)
            yield replace(batch, name=name, note=", ".join(filter(None, notes)))


def _draw_octaves(generator: np.random.Generator, plan: DimPlan, remainders: Remainders) -> list[int]:
    """Draw one number of rows between any two powers of 2, of those that no chosen case has.

    Each has the remainders that the others lack. Those of rows as they are come first, the largest before
    all, and so have one row more than whole blocks, if any has.
    """
    largest = plan.dim(BATCH).high
    assert largest is not None
    chosen = verification_batch_sizes(plan)
    remainders.add(BATCH, chosen)
    octaves = [
        [size for size in range(low, min(2 * low, largest)) if size not in chosen]
        for low in (2**power for power in range(_FIRST_POWER, largest.bit_length()))
    ]
    drawn = {}
    for number in sorted(range(len(octaves)), key=lambda number: (number % 2, -number)):
        if sizes := octaves[number]:
            best = remainders.choose(BATCH, sizes) or sizes
            edges = [size for size in best if is_edge(size)]
            drawn[number] = int(edges[0] if edges else generator.choice(best))
            remainders.add(BATCH, [drawn[number]])
    return [drawn[number] for number in sorted(drawn)]


def _fill_rests(plan: DimPlan, remainders: Remainders) -> Iterator[int]:
    """Yield small numbers of rows until all have left every rest of vectors."""
    largest = plan.dim(BATCH).high
    assert largest is not None
    while best := remainders.choose(BATCH, range(_FILLING.start, min(_FILLING.stop, largest))):
        remainders.add(BATCH, best[:1])
        yield best[0]


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


def _draw_rows(stretcher: Stretcher, generator: np.random.Generator, size: int, allowed: float) -> Rows:
    pool = stretcher.rows.within(size)
    drawn = pool.select(generator.integers(len(pool), size=size))
    for siblings in group_by_sequence(pool.sequences).values():
        # Lengths come from other rows than the values, so that sequences are combined in new ways.
        observed = pool.columns[siblings[0].name].per_row
        longest = stretcher.choose_longest(siblings[0], np.unique(observed))
        lengths = generator.choice(observed[observed <= longest], size=size)
        lengths[0] = longest
        drawn = drawn.resize(siblings, _cut(lengths, allowed * max(float(observed.mean()), 1.0)))
    return drawn


def _cut(lengths: Counts, mean: float) -> Counts:
    """Return the lengths, the longest ones cut until they are as long as `mean` on average; at least 1."""
    total = int(lengths.sum())
    if total <= mean * len(lengths):
        return lengths
    cut: Counts = np.minimum(lengths, longest_within(lengths, mean * len(lengths) / total))
    return cut


def _draw_stretched(
    stretcher: Stretcher, generator: np.random.Generator, size: int, allowed: float
) -> NamedBatch:
    sequences = stretcher.rows.sequences
    usual = max((float(stretcher.rows.columns[f.name].per_row.mean()) for f in sequences), default=0.0)
    usual = max(usual, 1.0)

    def counts(wanted: Wanted) -> Counts:
        return _limit(draw(generator, wanted.most, wanted.size))

    def events(wanted: Wanted) -> Counts:
        return _cut(draw(generator, stretcher.affordable_events(wanted.most, size), size), allowed * usual)

    return stretcher.batch(_RANDOM, size, counts=counts, events=events)


def _limit(counts: Counts) -> Counts:
    """Return the counts, those from the place on where all add up to too many cut to 3."""
    return np.where(np.cumsum(counts) <= _MOST_DRAWN, counts, counts.clip(0, 3))

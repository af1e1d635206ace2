"""Batches of random sizes, with lengths drawn from the rows themselves, and rare corner cases."""

from collections.abc import Iterator

import numpy as np

from exporter.data.batch import NamedBatch, Rows, group_by_sequence, named_batch, verification_batches
from exporter.data.ragged import Counts
from exporter.dims.plan import BATCH, DimPlan

_FEW = 5  # rows of a corner case
_SHORT = 3  # histories of a corner case have lengths 0, 1 and 2
_SEED, _DRAWN = 20, 4  # the same random sizes in every export, so that a failure can be reproduced


def agreeing_batches(rows: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    """Yield the cases on which package and eager must agree: chosen ones, then random ones."""
    yield from verification_batches(rows, plan)
    yield from sweep(rows, plan, seed=_SEED, count=_DRAWN)


def sweep(rows: Rows, plan: DimPlan, *, seed: int, count: int) -> Iterator[NamedBatch]:
    """Yield `count` batches of random sizes, the same for one seed, then the corner cases."""
    generator = np.random.default_rng(seed)
    largest = plan.dim(BATCH).high or len(rows)
    for number in range(count):
        size = round(float(np.exp(generator.uniform(0, np.log(largest)))))
        pool = rows.within(size)
        drawn = pool.select(generator.integers(len(pool), size=size))
        for siblings in group_by_sequence(rows.sequences).values():
            # Lengths come from other rows than the values, so that sequences are combined in new ways.
            observed = pool.columns[siblings[0].name].per_row
            drawn = drawn.resize(siblings, generator.choice(observed, size=size))
        yield named_batch(f"random_{number}", drawn, plan, f"{size} rows, seed {seed}")
    yield from _corners(rows, plan, min(_FEW, largest))


def _corners(rows: Rows, plan: DimPlan, size: int) -> Iterator[NamedBatch]:
    few, sequences = rows.take(size), list(group_by_sequence(rows.sequences).values())
    if not sequences:
        return
    equal, uneven, short = few, few, few
    for siblings in sequences:
        observed: Counts = rows.columns[siblings[0].name].per_row
        equal = equal.resize(siblings, np.full(size, max(int(np.median(observed)), 1), dtype=np.int64))
        parent = siblings[0].sequence
        assert parent is not None
        lengths = np.ones(size, dtype=np.int64)
        lengths[size // 2] = parent.length or int(observed.max(initial=1))
        uneven = uneven.resize(siblings, lengths)
        short = short.resize(siblings, np.arange(size, dtype=np.int64) % _SHORT)
    yield named_batch("equal_histories", equal, plan)
    yield named_batch("none_one_and_two", short, plan)
    yield named_batch("one_long_among_short", uneven, plan, "as long as the config declares")

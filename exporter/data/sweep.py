"""Batches at sizes drawn by chance, as the rows themselves have them; and rare corners."""

from collections.abc import Iterator, Sequence

import numpy as np

from exporter.config.schema import Feature
from exporter.data.batch import NamedBatch, Rows, named_batch, verification_batches
from exporter.data.ragged import Counts
from exporter.dims.plan import BATCH, DimPlan

_FEW = 5  # rows of a corner
_SHORT = 3  # lengths of 0, 1 and 2
_SEED, _DRAWN = 20, 4  # of the sizes that are drawn: the same in every export, so that a failure comes again


def agreeing_batches(rows: Rows, plan: DimPlan) -> Iterator[NamedBatch]:
    """The cases at which package and eager must agree: chosen ones, and ones that are drawn."""
    yield from verification_batches(rows, plan)
    yield from sweep(rows, plan, seed=_SEED, count=_DRAWN)


def sweep(rows: Rows, plan: DimPlan, *, seed: int, count: int) -> Iterator[NamedBatch]:
    """`count` batches of random sizes, the same for one seed, and the corners that rows rarely have."""
    generator = np.random.default_rng(seed)
    largest = plan.dim(BATCH).high or len(rows)
    for number in range(count):
        size = round(float(np.exp(generator.uniform(0, np.log(largest)))))
        drawn = rows.select(generator.integers(len(rows), size=size))
        for siblings in _sequences(rows):
            # Lengths of other rows than the values', so that sequences of one row come in new combinations.
            observed = rows.columns[siblings[0].name].per_row
            drawn = drawn.resize(siblings, generator.choice(observed, size=size))
        yield named_batch(f"random_{number}", drawn, plan, f"{size} rows, seed {seed}")
    yield from _corners(rows, plan, min(_FEW, largest))


def _corners(rows: Rows, plan: DimPlan, size: int) -> Iterator[NamedBatch]:
    few, sequences = rows.take(size), _sequences(rows)
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


def _sequences(rows: Rows) -> list[Sequence[Feature]]:
    """The features of each sequence; they have their lengths in common."""
    siblings: dict[str, list[Feature]] = {}
    for feature in rows.sequences:
        assert feature.sequence is not None
        siblings.setdefault(feature.sequence.name, []).append(feature)
    return list(siblings.values())

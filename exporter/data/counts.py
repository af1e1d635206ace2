"""Counts of values or events per row that cases try: a ladder around the sizes where compiled code changes.

Loops over the values of a row are unrolled and made vectors of in powers of two, and code may differ from a
count on; so the ladder has powers of two, their neighbours, and what lies between small ones: behind 8 and
behind 16 every rest that vectors of as many leave over.
"""

import numpy as np

from exporter.data.ragged import Counts

LOW = (0, 1, 2, 3, 4, 5, *range(7, 18))
MIDDLE = (*range(18, 34), 63, 64, 65, 127, 128, 129)
HIGH = (255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2048, 4097)
_FILLERS = 4  # counts: rows beyond the ladder hold 0 to 3


def high_counts(top: int) -> tuple[int, ...]:
    """Return the highest part of the ladder, in powers of two beyond its usual end if `top` is beyond it."""
    beyond = (2**power + 1 for power in range(13, 40) if 2 ** (power - 1) + 1 < top)
    return (*HIGH, *beyond)


def fit_ladder(ladder: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return the counts of a part of the ladder for rows that hold `most` at most, with `most` itself."""
    fitting = tuple(count for count in ladder if count <= most)
    if fitting == ladder:
        return ladder
    return tuple(dict.fromkeys((*fitting, max(most - 1, 0), most)))


def climb(ladder: tuple[int, ...], most: int, size: int, shift: int = 0) -> Counts:
    """Return `size` counts: the fitting ladder, `shift` places on, then small ones."""
    fitting = np.roll(np.array(fit_ladder(ladder, most), dtype=np.int64), -shift)
    fillers = np.arange(max(size - len(fitting), 0), dtype=np.int64) % min(_FILLERS, most + 1)
    return np.concatenate([fitting, fillers])[:size]


def spread(total: int, groups: int) -> Counts:
    """Return counts that differ by at most 1 and add up to `total`."""
    counts = np.full(groups, total // groups, dtype=np.int64)
    counts[: total % groups] += 1
    return counts


def limit_total(counts: Counts, most: int | None) -> Counts:
    """Return the counts, smaller from where they add up to more than `most`."""
    if most is None:
        return counts
    before: Counts = np.cumsum(counts) - counts
    return np.minimum(np.maximum(most - before, 0), counts)


def raise_total(counts: Counts, least: int) -> Counts:
    """Return the counts, the first one larger if they add up to less than `least`."""
    raised = counts.copy()
    if len(raised):
        raised[0] += max(0, least - int(counts.sum()))
    return raised


def draw(generator: np.random.Generator, most: int, size: int) -> Counts:
    """Draw counts from 0 to `most`, as many of each order of magnitude."""
    drawn: Counts = (np.exp(generator.uniform(0, np.log(most + 2), size=size)) - 1).astype(np.int64)
    within: Counts = drawn.clip(0, most)
    return within

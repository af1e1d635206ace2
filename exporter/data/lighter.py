"""Batches in the place of the largest one, where that one takes too long."""

from collections.abc import Iterator

import numpy as np

from exporter.data.ragged import Counts
from exporter.data.rows import NamedBatch, Rows, named_batch
from exporter.dims.plan import DimPlan
from exporter.dims.sizes import verification_batch_sizes


def lighter_batches(rows: Rows, plan: DimPlan, share: float) -> Iterator[NamedBatch]:
    """Yield two batches in the place of the largest one, each with at most half a `share` of its events.

    They are timed and repeated; `full_batch`, which has the whole share, is not. The first has rows as they
    are, but fewer of them; the second has as many rows, with shorter histories.
    None comes in the place of a batch without sequences: it takes no longer for a row than a small one.
    """
    *small, size = verification_batch_sizes(plan)
    if not rows.sequences:
        return
    share /= 2
    fewer = int(size * share)
    if fewer > max(small, default=1):
        yield named_batch(f"batch_{fewer}", rows.take(fewer), plan, f"the most rows in the time for {size}")
    many = rows.take(size)
    lengths = np.concatenate([many.columns[feature.name].per_row for feature in many.sequences])
    longest = longest_within(lengths, share)
    columns = {feature.name: many.columns[feature.name].cut(longest) for feature in many.sequences}
    note = f"histories of at most {longest} events, as longer ones would take too long"
    yield named_batch(f"batch_{size}", many.with_columns(columns), plan, note)


def longest_within(lengths: Counts, share: float) -> int:
    """Return the length to cut to so that a `share` of all elements is kept; at least 1."""
    allowed, low, high = share * int(lengths.sum()), 1, max(1, int(lengths.max(initial=1)))
    while low < high:
        middle = (low + high + 1) // 2
        if int(np.minimum(lengths, middle).sum()) <= allowed:
            low = middle
        else:
            high = middle - 1
    return low

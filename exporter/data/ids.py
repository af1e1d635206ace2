"""Ids that cases look up beside those of rows: both ends of every table, and rows between them."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from exporter.config.schema import Feature

Ids = NDArray[np.int64]

_LARGEST = 2**63 - 2  # the next one marks a free entry of a map


def probe_ids(feature: Feature, count: int, known: Mapping[str, Ids]) -> Ids:
    """Return `count` ids of the feature's table: its first and last row, and rows spread between them.

    Where a map finds the rows, they are the ids that it knows, `known` by feature, and some that it does not.
    """
    assert feature.table is not None
    if feature.table.id_map is None:
        ends, rows = _ends_of(feature.table.rows), feature.table.rows
        between = np.linspace(0, rows - 1, max(count - len(ends), 0)).round().astype(np.int64)
    else:
        mapped = known.get(feature.name, np.zeros(0, dtype=np.int64))
        ends = _ends_of_map(mapped)
        places = np.linspace(0, max(len(mapped) - 1, 0), max(count - len(ends), 0)).round().astype(np.int64)
        between = mapped[places] if len(mapped) else places
    return np.concatenate([ends, between])[:count]


def _ends_of(rows: int) -> Ids:
    last = rows - 1
    ends = (0, last, 1, last - 1, rows // 2, 2, last - 2)
    return np.array(list(dict.fromkeys(min(max(end, 0), last) for end in ends)), dtype=np.int64)


def _ends_of_map(known: Ids) -> Ids:
    """Return the ends of a map's ids in turn with ids beside them, which it does not know."""
    if not len(known):
        return np.array([0, -1, _LARGEST], dtype=np.int64)
    first, last = int(known.min()), int(known.max())
    beside = (number for number in (last + 1, first - 1, _LARGEST, -1) if abs(number) <= _LARGEST)
    strangers = [number for number in beside if number not in (first, last)]
    ends = [int(known[0]), strangers[0], int(known[-1]), *strangers[1:], first, last]
    return np.array(list(dict.fromkeys(ends)), dtype=np.int64)

"""Remainders of sizes: what blocks of compiled code leave over is computed by code of its own.

A compiled loop computes 8 or 16 numbers at once, and what is left by a tail; a kernel of matrix products has
code for each number of rows that its blocks of up to 16 leave over; larger blocks have edges: no rest, a rest
of one, and all but one. A size is in a class of each block that fits into it. Few sizes have every class
of vectors and every edge, if each is chosen for the classes that the others lack.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from exporter.data.ragged import Counts

_VECTORS = (8, 16)  # every rest is a class
_BLOCKS = (64, 128)  # their edges are classes; an edge of 64 is one of 32 as well
_WEIGHTS = {8: 8, 16: 4, 64: 16, 128: 1}  # of a class that no size has yet, by its block

_FURTHEST = 63  # that a total is raised by

Class = tuple[int, int]  # a block, and what is left over


@lru_cache(maxsize=1 << 14)
def find_classes(size: int) -> frozenset[Class]:
    """Return the classes of a size."""
    vectors = {(block, size % block) for block in _VECTORS if size >= block}
    edges = {
        (block, rest) for block in _BLOCKS if size >= block and (rest := size % block) in (0, 1, block - 1)
    }
    return frozenset(vectors | edges)


def is_edge(size: int) -> bool:
    """Return whether whole blocks leave a rest of one, or lack one."""
    return any(block > 16 and rest != 0 for block, rest in find_classes(size))


class Remainders:
    """The classes of the sizes that each dim has been given; finds sizes for those that are missing."""

    def __init__(self) -> None:
        self._found: defaultdict[str, set[Class]] = defaultdict(set)

    def add(self, dim: str, sizes: Iterable[int]) -> None:
        """Count these sizes of a dim as tried."""
        for size in sizes:
            self._found[dim] |= find_classes(size)

    def choose(self, dim: str, sizes: Iterable[int]) -> list[int]:
        """Return those of the sizes that have the most classes that a dim lacks; none if none has any."""
        worth = {size: self._weigh(dim, size) for size in sizes}
        most = max(worth.values(), default=0)
        return [size for size in worth if most and worth[size] == most]

    def complete(self, dim: str, counts: Counts, most: int, in_all: int | None) -> Counts:
        """Return the counts, the last ones larger so that the total of a dim has classes that are missing.

        None becomes larger than `most`, and the total not larger than `in_all`.
        """
        total = int(counts.sum())
        room = (most - counts)[::-1].clip(0).cumsum()[::-1]
        highest = total + min(int(room[0]) if len(room) else 0, _FURTHEST)
        highest = max(total, highest if in_all is None else min(highest, in_all))
        wanted = (self.choose(dim, range(total, highest + 1)) or [total])[0]
        return fill_last(counts, most, wanted - total)

    def _weigh(self, dim: str, size: int) -> int:
        return sum(_WEIGHTS[block] for block, _ in find_classes(size) - self._found[dim])


def fill_last(counts: Counts, most: int, more: int) -> Counts:
    """Return the counts with `more` in all: the last ones, as far as each may hold `most`."""
    room = (most - counts).clip(0)
    behind = room[::-1].cumsum()[::-1] - room  # room in the counts that follow
    filled: Counts = counts + np.minimum((more - behind).clip(0), room)
    return filled

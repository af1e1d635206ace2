"""The values of one feature over rows of different lengths, as flat arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]
Values = NDArray[np.int64] | NDArray[np.float32]


@dataclass(frozen=True, kw_only=True, eq=False)
class Ragged:
    """Values of rows that hold elements that hold values; each level is laid end to end.

    An element is an event of a sequence; outside a sequence every value is an element of its own.
    """

    values: Values
    per_element: Counts  # number of values of each element
    per_row: Counts  # number of elements of each row
    weights: NDArray[np.float32] | None = None  # weight of each value, if the feature is weighted

    def __len__(self) -> int:
        return len(self.per_row)

    def select(self, rows: Sequence[int] | Counts) -> "Ragged":
        """Return the rows of these numbers, in this order; a row may come several times."""
        chosen = np.asarray(rows, dtype=np.int64)
        return self._gather(_spans(self.per_row, self._row_starts, chosen), self.per_row[chosen])

    def resize(self, per_row: Counts, *, width: int = 1) -> "Ragged":
        """Return rows of the given lengths, filled with these elements over and over.

        Without any elements, they are filled with elements of `width` zeros.
        """
        total = int(per_row.sum())
        if len(self.per_element):
            return self._gather(np.arange(total) % len(self.per_element), per_row)
        return Ragged(
            values=np.zeros(total * width, dtype=self.values.dtype),
            per_element=np.full(total, width, dtype=np.int64),
            per_row=per_row,
            weights=None if self.weights is None else np.ones(total * width, dtype=np.float32),
        )

    def resize_elements(self, per_element: Counts) -> "Ragged":
        """Return the elements with other numbers of values, repeated from these; zeros if there are none."""
        total = int(per_element.sum())
        pool = self.values if len(self.values) else np.zeros(1, dtype=self.values.dtype)
        weights = self.weights
        if weights is not None:
            weights = np.resize(weights if len(weights) else np.ones(1, dtype=np.float32), total)
        return replace(self, values=np.resize(pool, total), per_element=per_element, weights=weights)

    def with_other_weights(self) -> "Ragged":
        """Return the same ids with other weights: positive, negative and 0."""
        pattern = np.array([0.5, -1.25, 0.0, 2.0], dtype=np.float32)
        return replace(self, weights=np.resize(pattern, len(self.values)))

    def with_other_numbers(self, largest: float, shift: int) -> "Ragged":
        """Return the same rows with other numbers in every other element: 0, and some beyond `largest`.

        They are four times as large, the negative of that, and a small part of it; `shift` places on.
        """
        if not len(self.values):
            return self
        finite = float(np.finfo(np.float32).max)
        pattern = np.array([4 * largest, 0, -4 * largest, largest / 4096]).clip(-finite, finite)
        numbers = self.values.copy().reshape(len(self.per_element), -1)
        rows, width = numbers[::2].shape
        numbers[::2] = pattern[(np.add.outer(np.arange(rows), np.arange(width)) + shift) % len(pattern)]
        return replace(self, values=numbers.reshape(-1))

    def cut_elements(self, most: int) -> "Ragged":
        """Keep the first `most` values of every element."""
        within = np.arange(len(self.values)) - np.repeat(self._element_starts, self.per_element) < most
        return replace(
            self,
            values=self.values[within],
            per_element=np.minimum(self.per_element, most),
            weights=None if self.weights is None else self.weights[within],
        )

    def cut(self, longest: int) -> "Ragged":
        """Keep the first `longest` elements of every row."""
        place_in_row = np.arange(len(self.per_element)) - np.repeat(self._row_starts, self.per_row)
        return self._gather(np.flatnonzero(place_in_row < longest), np.minimum(self.per_row, longest))

    def fill_empty(self, filler: Values, *, one_element: bool) -> "Ragged":
        """Give every empty row the values of `filler`, as one element or as one element each."""
        empty = self.per_row == 0
        element = np.array([len(filler)] if one_element else [1] * len(filler), dtype=np.int64)
        at_element = self._row_starts[empty]
        at_value = np.append(self._element_starts, len(self.values))[at_element]
        return Ragged(
            values=_insert(self.values, at_value, filler),
            per_element=_insert(self.per_element, at_element, element),
            per_row=np.where(empty, len(element), self.per_row),
            weights=None if self.weights is None else _insert(self.weights, at_value, np.ones(len(filler))),
        )

    @cached_property
    def _row_starts(self) -> Counts:
        """The number of each row's first element; kept, as a hundred batches are drawn from one `Ragged`."""
        return _starts(self.per_row)

    @cached_property
    def _element_starts(self) -> Counts:
        """The number of each element's first value."""
        return _starts(self.per_element)

    def _gather(self, elements: Counts, per_row: Counts) -> "Ragged":
        values = _spans(self.per_element, self._element_starts, elements)
        return Ragged(
            values=self.values[values],
            per_element=self.per_element[elements],
            per_row=per_row,
            weights=None if self.weights is None else self.weights[values],
        )


def concatenate(parts: Sequence[Ragged]) -> Ragged:
    """Return the rows of all parts, one part after another."""
    weights = [part.weights for part in parts if part.weights is not None]
    return Ragged(
        values=np.concatenate([part.values for part in parts]),
        per_element=np.concatenate([part.per_element for part in parts]),
        per_row=np.concatenate([part.per_row for part in parts]),
        weights=np.concatenate(weights) if weights else None,
    )


def _starts(counts: Counts) -> Counts:
    return np.cumsum(counts) - counts


def _spans(counts: Counts, starts: Counts, chosen: Counts) -> Counts:
    """Return the positions of the chosen groups, of which `starts` has the first ones."""
    lengths = counts[chosen]
    offsets = starts[chosen] - _starts(lengths)
    return np.repeat(offsets, lengths) + np.arange(lengths.sum())


def _insert(values: NDArray[Any], positions: Counts, filler: NDArray[Any]) -> NDArray[Any]:
    return np.insert(values, np.repeat(positions, len(filler)), np.tile(filler, len(positions)))

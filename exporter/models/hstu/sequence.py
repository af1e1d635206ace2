"""Sequence that the parts of an HSTU encoder pass on: one per row.

B rows, P elements of all rows together, M of them at the rows' ends, D width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from exporter.models.blocks.jagged import Layout, tail_index


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Elements whose encoding is asked for: all candidates, or else the last element of each row."""

    layout: Layout  # of these elements: M in B rows
    index: Tensor  # (M,): their numbers among all elements; P for a row that has none

    def select(self, values_PD: Tensor) -> Tensor:
        """Return the values of these elements, (M, D), zeros for a row that has none."""
        # The row of zeros appended is read even if there are no values at all.
        return F.pad(values_PD, (0, 0, 0, 1))[self.index]


@dataclass(frozen=True, kw_only=True)
class EncoderSequence:
    """Rows of contextual elements, then events with the oldest first, then candidates if there are any."""

    values: Tensor  # (P, D)
    timestamps: Tensor  # (P,); the context has time 0
    layout: Layout
    candidates: Layout | None = None

    @property
    def history_lengths(self) -> Tensor:
        """Number of elements of each row that are not candidates, (B,)."""
        lengths_B = self.layout.lengths
        return lengths_B if self.candidates is None else lengths_B - self.candidates.lengths

    @property
    def tail(self) -> Tail:
        """Elements whose encoding the model reads."""
        whole = self.layout
        if self.candidates is not None:
            return Tail(layout=self.candidates, index=tail_index(whole, self.candidates))
        newest_B = torch.where(whole.lengths > 0, whole.offsets[1:] - 1, whole.total)
        return Tail(layout=Layout.uniform(1, like=whole), index=newest_B)


@dataclass(frozen=True, kw_only=True)
class EncodedTail:
    """Encoded elements of a sequence's tail."""

    values: Tensor  # (M, D)
    timestamps: Tensor  # (M,)
    row_lengths: Tensor  # (B,): of the whole rows

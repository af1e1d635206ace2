"""Rows of different lengths, as jagged tensors (one after another) or padded ones (side by side).

On a CPU fbgemm's operators convert them, on a GPU those of `jagged_gathers`.

B rows, N elements of all rows together, L positions of the longest row, C elements of a prefix, D width.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import fbgemm_gpu  # noqa: F401  registers torch.ops.fbgemm
import torch
import torch.nn.functional as F
from torch import Tensor

from exporter.models.blocks import jagged_gathers

# Smallest padded length: for fewer than two places, inductor asks whether a traced size is 1.
_LEAST = 2


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Division of N elements into B rows; tensors over the same elements share one layout."""

    lengths: Tensor  # (B,)
    offsets: Tensor  # (B + 1,): where each row starts, and N
    total: int  # N

    @classmethod
    def of(cls, lengths_B: Tensor, *, total: int) -> "Layout":
        """Return the layout of `total` elements; `total` comes from a shape, so that tracing knows it."""
        return cls(lengths=lengths_B, offsets=cumulative_offsets(lengths_B), total=total)

    @classmethod
    def from_offsets(cls, offsets_B1: Tensor, *, total: int) -> "Layout":
        """Return the layout of rows that start at these offsets, for a submodule with a layout of its own.

        The layout holds a view of the offsets: fbgemm's operators return the offsets they are given, and a
        trace would let later operators read those, across the border of the submodule.
        """
        return cls(lengths=offsets_B1.diff(), offsets=offsets_B1.view(-1), total=total)

    @classmethod
    def uniform(cls, size: int, *, like: "Layout") -> "Layout":
        """Return a layout of as many rows as `like`, each with `size` elements."""
        lengths_B = torch.full_like(like.lengths, size)
        return cls.of(lengths_B, total=size * lengths_B.shape[0])

    @cached_property
    def longest(self) -> int:
        """L, read from the lengths; in a trace it is a symbol of its own."""
        return as_size(self.lengths.max().clamp(min=_LEAST), at_least=_LEAST)

    @cached_property
    def rows(self) -> Tensor:
        """Row number of each element, (N,)."""
        elements = torch.arange(self.total, device=self.offsets.device)
        # Clamped even if the lengths do not add up to the total; the input checks refuse that.
        rows = torch.searchsorted(self.offsets, elements, right=True) - 1
        return rows.clamp(max=self.lengths.shape[0] - 1)

    @cached_property
    def places(self) -> Tensor:
        """Place of each element in its row, counted from 0, (N,)."""
        return torch.arange(self.total, device=self.offsets.device) - self.offsets[self.rows]


@dataclass(frozen=True, kw_only=True)
class RowJoin:
    """Concatenation of two jagged tensors row by row: the left elements of a row, then its right ones."""

    layout: Layout
    order: Tensor  # (N + M,): index of each element in the left tensor followed by the right one

    @classmethod
    def of(cls, left: Layout, right: Layout) -> "RowJoin":
        layout = Layout.of(left.lengths + right.lengths, total=left.total + right.total)
        rows, places = layout.rows, layout.places
        behind = places - left.lengths[rows]
        order = torch.where(
            behind < 0, left.offsets[rows] + places, left.total + right.offsets[rows] + behind
        )
        return cls(layout=layout, order=order.clamp(max=layout.total - 1))

    def join(self, left_ND: Tensor, right_MD: Tensor) -> Tensor:
        """Concatenate (N, D) and (M, D) row by row to (N + M, D)."""
        return torch.cat([left_ND, right_MD])[self.order]


def as_size(scalar: Tensor, *, at_least: int = 0) -> int:
    """Return the value as a size for shapes; in a trace a symbol, where `int()` would make a constant."""
    size = cast(int, scalar.item())
    torch._check(size >= at_least)  # noqa: SLF001  public, despite its name
    return size


def cumulative_offsets(lengths_B: Tensor) -> Tensor:
    """Return where each row starts, and the total: the sums of the first 0, 1, ..., B lengths."""
    if lengths_B.device.type == "cuda":
        return jagged_gathers.cumulative_offsets(lengths_B)
    offsets: Tensor = torch.ops.fbgemm.asynchronous_complete_cumsum(lengths_B)
    return offsets


def pad(values_ND: Tensor, layout: Layout) -> Tensor:
    """Pad every row with zeros to the longest: (N, D) to (B, L, D)."""
    return pad_to(values_ND, layout.offsets, layout.longest)


def pad_to(values_ND: Tensor, offsets: Tensor, length: int) -> Tensor:
    """Pad every row with zeros, or cut it: (N, D) to (B, length, D)."""
    if values_ND.device.type == "cuda":
        return jagged_gathers.pad(values_ND, offsets, length)
    padded: Tensor = torch.ops.fbgemm.jagged_to_padded_dense(values_ND, [offsets], [length], 0.0)
    return padded


def first(values_ND: Tensor, offsets: Tensor) -> Tensor:
    """Return the first element of each row, zeros for an empty row: (N, D) to (B, D)."""
    return pad_to(values_ND, offsets, 1).squeeze(1)


def last(values_ND: Tensor, layout: Layout) -> Tensor:
    """Return the last element of each row, zeros for an empty row: (N, D) to (B, D)."""
    # An empty row reads the row of zeros appended to the values, even if there are no values at all.
    index_B = torch.where(layout.lengths > 0, layout.offsets[1:] - 1, layout.total)
    return F.pad(values_ND, (0, 0, 0, 1))[index_B]


def unpad(padded_BLD: Tensor, layout: Layout) -> Tensor:
    """Remove the padding: (B, L, D) to (N, D)."""
    if padded_BLD.device.type == "cuda":
        return jagged_gathers.unpad(padded_BLD, layout.rows, layout.places)
    values_ND: Tensor = torch.ops.fbgemm.dense_to_jagged(padded_BLD, [layout.offsets], layout.total)[0]
    return values_ND


def tail_index(layout: Layout, tail: Layout) -> Tensor:
    """Return the numbers of the last elements of each row, as many as `tail` has, (M,)."""
    behind_M = tail.lengths[tail.rows] - tail.places
    index_M = layout.offsets[1:][tail.rows] - behind_M
    return index_M.clamp(min=0, max=layout.total - 1)

"""Rows of different lengths: one after another (jagged), or side by side (padded).

By fbgemm's operators on the CPU, and by `jagged_gathers` on a GPU.

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

# The shortest padding: with fewer places than two, inductor asks a traced size whether it is 1.
_LEAST = 2


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How N elements fall into B rows; tensors over the same elements share one."""

    lengths: Tensor  # (B,)
    offsets: Tensor  # (B + 1,): where each row starts, and N
    total: int  # N

    @classmethod
    def of(cls, lengths_B: Tensor, *, total: int) -> "Layout":
        """The layout of `total` elements; `total` is taken from a shape, so that tracing knows the size."""
        return cls(lengths=lengths_B, offsets=cumulative_offsets(lengths_B), total=total)

    @classmethod
    def between(cls, offsets_B1: Tensor, *, total: int) -> "Layout":
        """The layout of rows that start at these offsets, for a submodule that is not to share another's.

        It has a view of the offsets: fbgemm's operators return those that they are given, and in a trace what
        reads them later would read them from there, across the border of the submodule.
        """
        return cls(lengths=offsets_B1.diff(), offsets=offsets_B1.view(-1), total=total)

    @classmethod
    def even(cls, size: int, *, like: "Layout") -> "Layout":
        """As many rows as `like`, all of one size."""
        lengths_B = torch.full_like(like.lengths, size)
        return cls.of(lengths_B, total=size * lengths_B.shape[0])

    @cached_property
    def longest(self) -> int:
        """L, read from the lengths: in a trace a symbol of its own."""
        return as_size(self.lengths.max().clamp(min=_LEAST), at_least=_LEAST)

    @cached_property
    def rows(self) -> Tensor:
        """The row of each element, (N,)."""
        elements = torch.arange(self.total, device=self.offsets.device)
        # Kept in range even if the lengths do not add up to the total, which is refused elsewhere.
        rows = torch.searchsorted(self.offsets, elements, right=True) - 1
        return rows.clamp(max=self.lengths.shape[0] - 1)

    @cached_property
    def places(self) -> Tensor:
        """The place of each element in its row, from 0, (N,)."""
        return torch.arange(self.total, device=self.offsets.device) - self.offsets[self.rows]


@dataclass(frozen=True, kw_only=True)
class Joined:
    """Two jagged tensors row by row: of each row the elements on the left, then those on the right."""

    layout: Layout
    order: Tensor  # (N + M,): where each element is in the left followed by the right

    @classmethod
    def of(cls, left: Layout, right: Layout) -> "Joined":
        layout = Layout.of(left.lengths + right.lengths, total=left.total + right.total)
        rows, places = layout.rows, layout.places
        behind = places - left.lengths[rows]
        order = torch.where(
            behind < 0, left.offsets[rows] + places, left.total + right.offsets[rows] + behind
        )
        return cls(layout=layout, order=order.clamp(max=layout.total - 1))

    def join(self, left_ND: Tensor, right_MD: Tensor) -> Tensor:
        """(N, D) and (M, D) to (N + M, D)."""
        return torch.cat([left_ND, right_MD])[self.order]


def as_size(scalar: Tensor, *, at_least: int = 0) -> int:
    """The value as a size for shapes; in a trace a symbol, which `int()` would try to make a constant."""
    size = cast(int, scalar.item())
    torch._check(size >= at_least)  # noqa: SLF001  public, in spite of its name
    return size


def cumulative_offsets(lengths_B: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., B lengths."""
    if lengths_B.device.type == "cuda":
        return jagged_gathers.cumulative_offsets(lengths_B)
    offsets: Tensor = torch.ops.fbgemm.asynchronous_complete_cumsum(lengths_B)
    return offsets


def pad(values_ND: Tensor, layout: Layout) -> Tensor:
    """Jagged to padded with zeros: (N, D) to (B, L, D)."""
    return pad_to(values_ND, layout.offsets, layout.longest)


def pad_to(values_ND: Tensor, offsets: Tensor, length: int) -> Tensor:
    """Jagged to padded with zeros, or cut: (N, D) to (B, length, D)."""
    if values_ND.device.type == "cuda":
        return jagged_gathers.pad(values_ND, offsets, length)
    padded: Tensor = torch.ops.fbgemm.jagged_to_padded_dense(values_ND, [offsets], [length], 0.0)
    return padded


def first(values_ND: Tensor, offsets: Tensor) -> Tensor:
    """The first element of each row, zeros where there is none: (N, D) to (B, D)."""
    return pad_to(values_ND, offsets, 1).squeeze(1)


def last(values_ND: Tensor, layout: Layout) -> Tensor:
    """The last element of each row, zeros where there is none: (N, D) to (B, D)."""
    # One row of zeros behind the values: where an empty row looks, even if there are no values at all.
    index_B = torch.where(layout.lengths > 0, layout.offsets[1:] - 1, layout.total)
    return F.pad(values_ND, (0, 0, 0, 1))[index_B]


def unpad(padded_BLD: Tensor, layout: Layout) -> Tensor:
    """Padded to jagged: (B, L, D) to (N, D)."""
    if padded_BLD.device.type == "cuda":
        return jagged_gathers.unpad(padded_BLD, layout.rows, layout.places)
    values_ND: Tensor = torch.ops.fbgemm.dense_to_jagged(padded_BLD, [layout.offsets], layout.total)[0]
    return values_ND


def tails(values_ND: Tensor, layout: Layout, tail: Layout) -> Tensor:
    """The last elements of each row, as many as `tail` has: (N, D) to (M, D)."""
    behind_M = tail.lengths[tail.rows] - tail.places
    index_M = layout.offsets[1:][tail.rows] - behind_M
    return values_ND[index_M.clamp(min=0, max=layout.total - 1)]

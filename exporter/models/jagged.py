"""Rows of different lengths: one after another (jagged), or side by side (padded).

B rows, N elements of all rows together, L positions of the longest row, C elements of a prefix, D width.
"""

from dataclasses import dataclass
from typing import cast

import fbgemm_gpu  # noqa: F401  registers torch.ops.fbgemm
import torch
import torch.nn.functional as F
from torch import Tensor

# The shortest padding: with fewer places than two, inductor asks a traced size whether it is 1.
_LEAST = 2


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How N elements fall into B rows; tensors over the same elements share one."""

    lengths: Tensor  # (B,)
    offsets: Tensor  # (B + 1,): where each row starts, and N
    total: int  # N
    longest: int  # L

    @classmethod
    def of(cls, lengths_B: Tensor, *, total: int) -> "Layout":
        """The layout of `total` elements; `total` is taken from a shape, so that tracing knows the size."""
        longest = as_size(lengths_B.max().clamp(min=_LEAST), at_least=_LEAST)
        return cls(lengths=lengths_B, offsets=cumulated(lengths_B), total=total, longest=longest)

    def with_prefix(self, size: int) -> "Layout":
        """Every row `size` elements longer."""
        lengths_B = self.lengths + size
        return Layout(
            lengths=lengths_B,
            offsets=cumulated(lengths_B),
            total=self.total + size * lengths_B.shape[0],
            longest=self.longest + size,
        )

    def rows(self) -> Tensor:
        """The row of each element, (N,)."""
        elements = torch.arange(self.total, device=self.offsets.device)
        # Kept in range even if the lengths do not add up to the total, which is refused elsewhere.
        rows = torch.searchsorted(self.offsets, elements, right=True) - 1
        return rows.clamp(max=self.lengths.shape[0] - 1)

    def places(self) -> Tensor:
        """The place of each element in its row, from 0, (N,)."""
        return torch.arange(self.total, device=self.offsets.device) - self.offsets[self.rows()]


def as_size(scalar: Tensor, *, at_least: int = 0) -> int:
    """The value as a size for shapes; in a trace a symbol, which `int()` would try to make a constant."""
    size = cast(int, scalar.item())
    torch._check(size >= at_least)  # noqa: SLF001  public, in spite of its name
    return size


def cumulated(lengths_B: Tensor) -> Tensor:
    """Sums of the first 0, 1, ..., B lengths."""
    offsets: Tensor = torch.ops.fbgemm.asynchronous_complete_cumsum(lengths_B)
    return offsets


def pad(values_ND: Tensor, layout: Layout) -> Tensor:
    """Jagged to padded with zeros: (N, D) to (B, L, D)."""
    return _pad(values_ND, layout.offsets, layout.longest)


def first(values_ND: Tensor, offsets: Tensor) -> Tensor:
    """The first element of each row, zeros where there is none: (N, D) to (B, D)."""
    return _pad(values_ND, offsets, 1).squeeze(1)


def last(values_ND: Tensor, layout: Layout) -> Tensor:
    """The last element of each row, zeros where there is none: (N, D) to (B, D)."""
    # One row of zeros behind the values: where an empty row looks, even if there are no values at all.
    index_B = torch.where(layout.lengths > 0, layout.offsets[1:] - 1, layout.total)
    return F.pad(values_ND, (0, 0, 0, 1))[index_B]


def unpad(padded_BLD: Tensor, layout: Layout) -> Tensor:
    """Padded to jagged: (B, L, D) to (N, D)."""
    values_ND: Tensor = torch.ops.fbgemm.dense_to_jagged(padded_BLD, [layout.offsets], layout.total)[0]
    return values_ND


def prepend(prefix_BCD: Tensor, values_ND: Tensor, layout: Layout) -> Tensor:
    """The same prefix size in front of every row: (B, C, D) and (N, D) to (N + B * C, D)."""
    padded_BLD = torch.cat([prefix_BCD, pad(values_ND, layout)], dim=1)
    return unpad(padded_BLD, layout.with_prefix(prefix_BCD.shape[1]))


def _pad(values_ND: Tensor, offsets: Tensor, length: int) -> Tensor:
    padded: Tensor = torch.ops.fbgemm.jagged_to_padded_dense(values_ND, [offsets], [length], 0.0)
    return padded

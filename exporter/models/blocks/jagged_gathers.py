"""Jagged tensors in plain torch operators, as `jagged` uses them on a GPU; axis letters as there.

fbgemm's operators for a GPU are in another wheel, far larger than the one for CPUs, and inductor fuses plain
operators with those around them. An index out of bounds would end the process on a GPU, so every index is
clamped, in case offsets do not fit the values.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def cumulative_offsets(lengths_B: Tensor) -> Tensor:
    """Return the sums of the first 0, 1, ..., B lengths, in their dtype; it is one launch."""
    return F.pad(lengths_B.cumsum(0, dtype=lengths_B.dtype), (1, 0))


def pad(values_ND: Tensor, offsets: Tensor, length: int) -> Tensor:
    """Pad every row with zeros, or cut it: (N, D) to (B, length, D)."""
    total = values_ND.shape[0]
    index_BL = offsets[:-1].unsqueeze(1) + torch.arange(length, device=offsets.device)
    # A place behind its row's end reads the zeros appended to all values.
    index_BL = torch.where(index_BL < offsets[1:].unsqueeze(1), index_BL, total)
    return F.pad(values_ND, (0, 0, 0, 1))[index_BL.clamp(max=total)]


def unpad(padded_BLD: Tensor, rows_N: Tensor, places_N: Tensor) -> Tensor:
    """Remove the padding: (B, L, D) to (N, D), by each element's row and place."""
    longest = padded_BLD.shape[1]
    return padded_BLD.flatten(0, 1)[rows_N * longest + places_N.clamp(0, longest - 1)]

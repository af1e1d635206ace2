"""Rows of different lengths side by side or one after another: copies of whole rows, two Triton kernels.

B rows, N elements of all rows together, L places of a padded row, D width. The elements of a row follow each
other in both forms, so that its min(length, L) * D numbers are one stretch to copy, whatever D is.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def to_padded_kernel(
    values,  # (N, D)
    offsets,  # (B + 1,)
    padded,  # (B, L, D)
    L,
    D,
    blocks,  # programs per row
    BLOCK: tl.constexpr,
):
    """BLOCK numbers of one padded row: the row's own, then zeros."""
    row = tl.program_id(0) // blocks
    place = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    start = tl.load(offsets + row).to(tl.int64)
    length = tl.load(offsets + row + 1).to(tl.int64) - start
    found = tl.load(values + start * D + place, mask=place < length * D, other=0)
    row_at = row.to(tl.int64) * L * D
    tl.store(padded + row_at + place, found, mask=place < L * D)


@triton.jit
def to_jagged_kernel(
    padded,  # (B, L, D)
    offsets,  # (B + 1,)
    values,  # (N, D)
    B,
    N,
    L,
    D,
    blocks,  # programs per row
    BLOCK: tl.constexpr,
):
    """BLOCK numbers of one padded row; the row's last program also writes zeros where the row is longer."""
    row = tl.program_id(0) // blocks
    block = tl.program_id(0) % blocks
    start = tl.load(offsets + row).to(tl.int64)
    length = tl.load(offsets + row + 1).to(tl.int64) - start
    kept = tl.minimum(length, L) * D
    place = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    row_at = row.to(tl.int64) * L * D
    found = tl.load(padded + row_at + place, mask=place < kept, other=0)
    tl.store(values + start * D + place, found, mask=place < kept)
    if block == blocks - 1:
        # Elements of no row, if the offsets end before N, are written with the last.
        end = tl.where(row == B - 1, N, start + length)
        zeros = tl.zeros([BLOCK], dtype=values.dtype.element_ty)
        for beginning in range(start * D + kept, end * D, BLOCK):
            at = beginning + tl.arange(0, BLOCK)
            tl.store(values + at, zeros, mask=at < end * D)

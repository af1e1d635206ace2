"""Positions and ages of the elements of jagged rows, looked up and added in one pass: a Triton kernel.

B rows, P elements of all rows together, D width. The arithmetic is that of
`exporter.models.hstu.positional_encoder` as PyTorch computes it on a GPU, rounding by rounding: it divides by
a number by multiplying with its reciprocal, and roots are exact to the last bit. Anything else, such as
`tl.sqrt`, which approximates, moves ages across a bucket's edge.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def _rows(offsets, elements, B):
    """The row of each element: the last one that starts at the element or before."""
    rows = elements * 0
    step = 1
    while step < B:
        step *= 2
    while step > 0:
        further = rows + step
        start = tl.load(offsets + further, mask=further < B, other=0)
        rows = tl.where((further < B) & (start <= elements), further, rows)
        step //= 2
    return rows


@triton.jit
def _positions(places, history, highest, PREFIX: tl.constexpr, TIME: tl.constexpr):
    """Counted from the start; with time encoding from the history's end, but for the prefix."""
    if not TIME:
        return tl.minimum(tl.minimum(places, history), highest)
    from_end = tl.minimum(tl.maximum(history - places, 0) + PREFIX, highest)
    return tl.where(places < PREFIX, places, from_end)


@triton.jit
def _time_buckets(ages, per_increment, per_bucket, buckets, LOG: tl.constexpr):
    steps = tl.maximum(ages, 1e-6) * per_increment
    spread = tl.log(steps) if LOG else tl.sqrt_rn(steps)
    share = tl.minimum(tl.maximum(spread * per_bucket, 0.0), 1.0)
    return (share * buckets).to(tl.int32)


@triton.jit
def encode_positions_kernel(
    values,  # (P, D)
    offsets,  # (B + 1,)
    candidates,  # (B,): how many of a row's last elements are candidates
    positions,  # (position buckets, D)
    timestamps,  # (P,)
    query_times,  # (B,)
    times,  # (time buckets + 1, D)
    out,  # (P, D)
    B,
    P,
    scale,
    highest,  # of the position buckets
    per_increment,  # one by the seconds of an increment
    per_bucket,  # one by the number of time buckets
    buckets,  # how many time buckets
    D: tl.constexpr,
    PREFIX: tl.constexpr,
    CANDIDATES: tl.constexpr,
    TIME: tl.constexpr,
    QUERY_TIME: tl.constexpr,
    LOG: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """Encode the positions of BLOCK_P elements, which may belong to several rows."""
    elements = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    is_there = elements < P
    rows = _rows(offsets, elements, B)
    start = tl.load(offsets + rows)
    end = tl.load(offsets + rows + 1)
    history = end - start
    if CANDIDATES:
        history -= tl.load(candidates + rows)
    # Not below the first, and no time behind the last, even where offsets do not fit the elements.
    position = tl.maximum(_positions(elements - start, history, highest, PREFIX, TIME), 0)
    position_at = positions + position.to(tl.int64) * D
    time_at = position_at
    if TIME:
        time = tl.load(timestamps + elements, mask=is_there, other=0)
        if QUERY_TIME:
            anchor = tl.load(query_times + rows)
        else:
            anchor = tl.load(timestamps + end - 1, mask=is_there & (end > 0) & (end <= P), other=0)
        bucket = _time_buckets((anchor - time).to(tl.float32), per_increment, per_bucket, buckets, LOG)
        time_at = times + bucket.to(tl.int64) * D
    at = elements.to(tl.int64) * D
    for beginning in tl.static_range(0, D, BLOCK_D):
        d = (beginning + tl.arange(0, BLOCK_D))[None, :]
        mask = is_there[:, None] & (d < D)
        added = tl.load(position_at[:, None] + d, mask=mask, other=0.0).to(tl.float32)
        if TIME:
            added += tl.load(time_at[:, None] + d, mask=mask, other=0.0).to(tl.float32)
            added = added.to(positions.dtype.element_ty).to(tl.float32)
        value = tl.load(values + at[:, None] + d, mask=mask, other=0.0).to(tl.float32) * scale
        value = value.to(values.dtype.element_ty).to(tl.float32)
        tl.store(out + at[:, None] + d, (value + added).to(out.dtype.element_ty), mask=mask)

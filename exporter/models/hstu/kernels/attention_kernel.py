"""HSTU attention over jagged rows as one Triton kernel: SiLU of the scores, no softmax, nothing padded.

Each program computes the same BLOCK_M elements of one row for one head. Which row that is it finds out by
itself, from the offsets: row b owns the tiles from offsets[b] // BLOCK_M + b on, as many as it needs or one
more. So the grid, N // BLOCK_M + B, follows from shapes alone, and nothing waits for the device.

As in `exporter.models.hstu.attention`, history is everything of a row but its candidates, and "first" are the
elements that semi-local attention always sees.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl

# Rows that are searched at a time for the owner of a tile.
_SEARCHED = tl.constexpr(256)


@triton.jit
def _visible(
    rows,
    columns,
    history,
    CANDIDATES: tl.constexpr,
    PREFIX: tl.constexpr,
    WINDOW: tl.constexpr,
    SLA_K1: tl.constexpr,
    SLA_K2: tl.constexpr,
):
    """Return whether elements `rows` (M, 1) attend to elements `columns` (1, N) of the same row."""
    if SLA_K1 > 0 or SLA_K2 > 0:
        first = SLA_K2 if SLA_K2 > PREFIX else PREFIX
        visible = (columns <= rows) & ((columns > rows - SLA_K1) | (columns < first))
        if CANDIDATES:
            visible = tl.where(rows >= history, columns < history, visible)
        return visible
    # Places: the prefix is all at place 0, and the candidates are all at one place behind the history.
    places, others, behind = rows, columns, history
    if PREFIX > 0:
        places = tl.maximum(rows - PREFIX + 1, 0)
        others = tl.maximum(columns - PREFIX + 1, 0)
        behind = history - PREFIX + 1
    places = tl.minimum(places, behind)
    others = tl.minimum(others, behind)
    visible = (rows == columns) | (places > others)
    if WINDOW > 0:
        visible = visible & (places - others <= WINDOW)
    if PREFIX > 0:
        visible = visible | ((places == 0) & (others < behind))
    return visible


@triton.jit
def _silu(scores, alpha, APPROXIMATE: tl.constexpr):
    """SiLU of scores * alpha."""
    if APPROXIMATE:  # one special-function operation instead of two; at most 2^-11 off, as 16 bits are
        half = scores * (alpha * 0.5)
        tanh = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [half], dtype=tl.float32, is_pure=True, pack=1
        )
        return half * tanh + half
    scores = scores * alpha
    return scores * tl.sigmoid(scores)


@triton.jit
def _bounds(
    m,
    length,
    history,
    PREFIX: tl.constexpr,
    WINDOW: tl.constexpr,
    SLA_K1: tl.constexpr,
    SLA_K2: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Return the columns that the tile at `m` sees: (first_high, low, full_low, full_high, high).

    It sees some of [0, first_high) and of [low, high), and all of its rows see all of [full_low, full_high).
    All but `high` are at blocks' beginnings.
    """
    past = tl.minimum(m + BLOCK_M, length)
    low = m * 0
    high = tl.minimum(past, history)
    first_high = low
    full_low = low
    full_high = tl.minimum(m + 1, history) // BLOCK_N * BLOCK_N
    if SLA_K1 > 0 or SLA_K2 > 0:
        first = SLA_K2 if SLA_K2 > PREFIX else PREFIX
        if past <= history:
            first_high = (first + BLOCK_N - 1) // BLOCK_N * BLOCK_N + low
            low = tl.maximum(m - SLA_K1 + 1, 0) // BLOCK_N * BLOCK_N
            full_low = (tl.maximum(past - SLA_K1, 0) + BLOCK_N - 1) // BLOCK_N * BLOCK_N
        elif m < history:  # some are candidates, which see all of the history
            full_low = full_high
    if WINDOW > 0:
        low = tl.maximum(tl.minimum(m, history) - WINDOW, 0)
        low = (
            tl.where(low < PREFIX, 0, low) // BLOCK_N * BLOCK_N
        )  # at place 0 all of the prefix is seen, or none
        full_low = tl.maximum(tl.minimum(past - 1, history) - WINDOW, 0)
        full_low = (full_low + BLOCK_N - 1) // BLOCK_N * BLOCK_N
    if PREFIX > 0 and SLA_K1 == 0 and SLA_K2 == 0:
        high = tl.where(m < PREFIX, history, high)
        if history < PREFIX:  # then who sees what follows no order
            low = tl.minimum(low, 0)
            high = length
            full_high = tl.minimum(full_high, 0)
    low = tl.maximum(low, first_high)
    full_low = tl.maximum(full_low, low)
    full_high = tl.maximum(full_high, full_low)
    return first_high, low, full_low, full_high, high


@triton.jit
def _attend_block(
    q,
    k_start,
    v_start,
    stride,
    rows,
    m,
    length,
    history,
    alpha,
    CANDIDATES: tl.constexpr,
    PREFIX: tl.constexpr,
    WINDOW: tl.constexpr,
    SLA_K1: tl.constexpr,
    SLA_K2: tl.constexpr,
    A: tl.constexpr,
    V: tl.constexpr,
    BLOCK_A: tl.constexpr,
    BLOCK_V: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """The weighted sum of the values that `rows` of one row see, (BLOCK_M, BLOCK_V), before it is divided."""
    a = tl.arange(0, BLOCK_A)
    v = tl.arange(0, BLOCK_V)
    first_high, low, full_low, full_high, high = _bounds(
        m, length, history, PREFIX, WINDOW, SLA_K1, SLA_K2, BLOCK_M, BLOCK_N
    )
    # One loop over all blocks, so that its loads never run dry: the first ones, the others, and those of the
    # tile itself, where candidates see themselves.
    firsts = tl.cdiv(tl.minimum(first_high, high), BLOCK_N)
    others = firsts + tl.cdiv(tl.maximum(high - low, 0), BLOCK_N)
    own = tl.maximum(tl.cdiv(high, BLOCK_N), m // BLOCK_N) * BLOCK_N
    blocks = others
    if CANDIDATES and SLA_K1 == 0 and SLA_K2 == 0:
        blocks += tl.cdiv(tl.maximum(tl.minimum(m + BLOCK_M, length) - own, 0), BLOCK_N)
    attended = tl.zeros([BLOCK_M, BLOCK_V], dtype=tl.float32)
    for block in tl.range(0, blocks):
        beginning = low + (block - firsts) * BLOCK_N
        if SLA_K1 > 0 or SLA_K2 > 0:
            beginning = tl.where(block < firsts, block * BLOCK_N, beginning)
        if CANDIDATES:
            beginning = tl.where(block < others, beginning, own + (block - others) * BLOCK_N)
        columns = beginning + tl.arange(0, BLOCK_N)
        keys = tl.load(
            k_start + columns[None, :] * stride + a[:, None],
            mask=(columns[None, :] < length) & (a[:, None] < A),
            other=0.0,
        )
        weights = _silu(tl.dot(q, keys, input_precision=PRECISION), alpha, APPROXIMATE)
        if (beginning < full_low) | (beginning >= full_high):
            visible = _visible(
                rows[:, None], columns[None, :], history, CANDIDATES, PREFIX, WINDOW, SLA_K1, SLA_K2
            )
            weights = tl.where(visible, weights, 0.0)
        values = tl.load(
            v_start + columns[:, None] * stride + v[None, :],
            mask=(columns[:, None] < length) & (v[None, :] < V),
            other=0.0,
        )
        attended = tl.dot(weights.to(values.dtype), values, attended, input_precision=PRECISION)
    return attended


@triton.jit
def hstu_attention_kernel(
    x,  # (N, stride): of each element its values, queries and keys, from the columns given
    offsets,  # (B + 1,)
    candidates,  # (B,): how many of a row's last elements are candidates; or None
    out,  # (N, H * V)
    N,
    B,
    stride,
    v_column,
    q_column,
    k_column,
    alpha,
    divisor,
    H: tl.constexpr,
    A: tl.constexpr,
    V: tl.constexpr,
    CANDIDATES: tl.constexpr,
    PREFIX: tl.constexpr,
    WINDOW: tl.constexpr,
    SLA_K1: tl.constexpr,
    SLA_K2: tl.constexpr,
    APPROXIMATE: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_A: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """One tile of one row, for one head. The tiles that see most, those at a row's end, go first."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    # The last row whose tiles begin here or before. In no function of its own: what a call is given, inductor
    # would take to be written wherever its result leads.
    row = -1
    for beginning in range(0, B, _SEARCHED):
        some = beginning + tl.arange(0, _SEARCHED)
        starts = tl.load(offsets + some, mask=some < B, other=0)
        row += tl.sum(((starts // BLOCK_M + some <= tile) & (some < B)).to(tl.int32), axis=0)
    start = tl.load(offsets + row).to(tl.int64)
    # Where offsets do not fit the elements, nothing outside of them is read or written.
    length = (tl.minimum(tl.load(offsets + row + 1), N) - start).to(tl.int32)
    m = (tile - start // BLOCK_M - row).to(tl.int32) * BLOCK_M
    if (start < 0) | (m < 0) | (m >= length):
        return
    history = length
    if CANDIDATES:
        history = length - tl.load(candidates + row).to(tl.int32)

    rows = m + tl.arange(0, BLOCK_M)
    a = tl.arange(0, BLOCK_A)
    v = tl.arange(0, BLOCK_V)
    of_row = x + start * stride
    k_start = of_row + k_column + head * A
    v_start = of_row + v_column + head * V
    q = tl.load(
        of_row + q_column + head * A + rows[:, None] * stride + a[None, :],
        mask=(rows[:, None] < length) & (a[None, :] < A),
        other=0.0,
    )
    attended = _attend_block(
        q, k_start, v_start, stride, rows, m, length, history, alpha,
        CANDIDATES, PREFIX, WINDOW, SLA_K1, SLA_K2,
        A, V, BLOCK_A, BLOCK_V, BLOCK_M, BLOCK_N, APPROXIMATE, PRECISION,
    )  # fmt: skip
    at = out + (start + rows[:, None]) * (H * V) + head * V + v[None, :]
    mask = (rows[:, None] < length) & (v[None, :] < V)
    tl.store(at, (attended / divisor).to(out.dtype.element_ty), mask=mask)

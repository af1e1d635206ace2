"""The end of an STU layer, x + [u, a, u * norm(a)] @ W, as Triton kernels: up to the product, or all of it.

N elements, E width of the gate u = silu(...) and of a, what was attended to, D width of x and of the result.
G numbers of an element are normed together: all E of them, or one head's. Sums and norms are in fp32. What
PyTorch rounds to a narrower dtype between its operators is rounded here: norms to the dtype of their weights.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import triton
import triton.language as tl


@triton.jit
def _silu(gate):
    gate_fp32 = gate.to(tl.float32)
    return (gate_fp32 / (1.0 + tl.exp(-gate_fp32))).to(gate.dtype)


@triton.jit
def _affine(normed, weight, bias, GROUPED: tl.constexpr):
    """A group's norm is scaled and shifted by operators of their own, each of which rounds."""
    dtype: tl.constexpr = weight.dtype
    scale, shift = weight.to(tl.float32), bias.to(tl.float32)
    if GROUPED:
        scaled = (normed.to(dtype).to(tl.float32) * scale).to(dtype)
        return (scaled.to(tl.float32) + shift).to(dtype)
    return (normed * scale + shift).to(dtype)


@triton.jit
def _gated(u, normed, y_dtype: tl.constexpr):
    return (u.to(tl.float32) * normed.to(tl.float32)).to(y_dtype)


@triton.jit
def _norm_rows(a, is_there, eps, G: tl.constexpr):
    """Return rows normed, without weights; they are loaded whole, padded with zeros."""
    mean = tl.sum(a, axis=1) / G
    centred = tl.where(is_there, a - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / G
    return centred * tl.rsqrt(variance + eps)[:, None]


@triton.jit
def gate_kernel(
    uvqk,  # (N, stride): the gate before its silu, from u_column on
    attended,  # (N, E)
    norm_weight,  # (E,), or (E // G,) if GROUPED
    norm_bias,
    y,  # (N, 3 * E): u, a, u * norm(a)
    N,
    stride,
    u_column,
    eps,
    E: tl.constexpr,
    G: tl.constexpr,
    GROUPED: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_G: tl.constexpr,
):
    """Gate one group of BLOCK_N elements."""
    group = tl.program_id(0) % (E // G)
    rows = (tl.program_id(0) // (E // G)).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    g = tl.arange(0, BLOCK_G)
    columns = group * G + g[None, :]
    is_there = (rows < N) & (g < G)[None, :]
    a = tl.load(attended + rows * E + columns, mask=is_there, other=0.0)
    u = _silu(tl.load(uvqk + rows * stride + u_column + columns, mask=is_there, other=0.0))
    if GROUPED:
        weight, bias = tl.load(norm_weight + group), tl.load(norm_bias + group)
    else:
        weight = tl.load(norm_weight + columns, mask=(g < G)[None, :], other=0.0)
        bias = tl.load(norm_bias + columns, mask=(g < G)[None, :], other=0.0)
    normed = _affine(_norm_rows(a.to(tl.float32), is_there, eps, G), weight, bias, GROUPED)
    dtype: tl.constexpr = y.dtype.element_ty
    at = y + rows * (3 * E) + columns
    tl.store(at, u.to(dtype), mask=is_there)
    tl.store(at + E, a.to(dtype), mask=is_there)
    tl.store(at + 2 * E, _gated(u, normed, dtype), mask=is_there)


@triton.jit
def _mean_and_rstd(attended, rows, N, eps, E: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_E: tl.constexpr):
    """Return mean and reciprocal deviation of rows read in parts, merged without cancellation."""
    mean = tl.zeros([BLOCK_N], dtype=tl.float32)
    squares = tl.zeros([BLOCK_N], dtype=tl.float32)
    for beginning in tl.range(0, E, BLOCK_E):
        e = beginning + tl.arange(0, BLOCK_E)[None, :]
        a = tl.load(attended + rows * E + e, mask=(rows < N) & (e < E), other=0.0).to(tl.float32)
        width = tl.minimum(E - beginning, BLOCK_E)
        part_mean = tl.sum(a, axis=1) / width
        centred = tl.where(e < E, a - part_mean[:, None], 0.0)
        further = part_mean - mean
        share = width / (beginning + width)
        squares += tl.sum(centred * centred, axis=1) + further * further * (beginning * share)
        mean += further * share
    return mean[:, None], tl.rsqrt(squares / E + eps)[:, None]


@triton.jit
def project_kernel(
    x,  # (N, D)
    uvqk,  # (N, stride): the gate before its silu, from u_column on
    attended,  # (N, E)
    norm_weight,  # (E,), or (E // G,) if GROUPED
    norm_bias,
    weight,  # (3 * E, D)
    out,  # (N, D)
    N,
    stride,
    u_column,
    eps,
    E: tl.constexpr,
    D: tl.constexpr,
    G: tl.constexpr,
    GROUPED: tl.constexpr,  # then BLOCK_K holds one group
    PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_E: tl.constexpr,
):
    """Compute BLOCK_N elements by BLOCK_D columns of the result; blocks of the same elements are adjacent."""
    across: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    rows = (tl.program_id(0) // across).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)[:, None]
    d = (tl.program_id(0) % across) * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    dtype: tl.constexpr = weight.dtype.element_ty
    if GROUPED:
        mean, rstd = 0.0, 1.0  # each group has its own
    else:
        mean, rstd = _mean_and_rstd(attended, rows, N, eps, E, BLOCK_N, BLOCK_E)
    step: tl.constexpr = G if GROUPED else BLOCK_K
    summed = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    for beginning in tl.range(0, E, step):
        place = tl.arange(0, BLOCK_K)
        k = beginning + place[None, :]
        is_there = (rows < N) & (place < step)[None, :] & (k < E)
        a = tl.load(attended + rows * E + k, mask=is_there, other=0.0)
        u = _silu(tl.load(uvqk + rows * stride + u_column + k, mask=is_there, other=0.0))
        if GROUPED:
            scale, shift = tl.load(norm_weight + beginning // G), tl.load(norm_bias + beginning // G)
            normed = _norm_rows(a.to(tl.float32), is_there, eps, G)
        else:
            scale = tl.load(norm_weight + k, mask=k < E, other=0.0)
            shift = tl.load(norm_bias + k, mask=k < E, other=0.0)
            normed = (a.to(tl.float32) - mean) * rstd
        # Past a group or a row u is zero, and so is u * norm(a), whatever the norm.
        gated = _gated(u, _affine(normed, scale, shift, GROUPED), dtype)
        in_block = beginning + place[:, None]
        is_weight = (place < step)[:, None] & (in_block < E) & (d < D)
        at = weight + in_block * D + d
        summed = tl.dot(
            u.to(dtype), tl.load(at, mask=is_weight, other=0.0), summed, input_precision=PRECISION
        )
        w_a = tl.load(at + E * D, mask=is_weight, other=0.0)
        summed = tl.dot(a.to(dtype), w_a, summed, input_precision=PRECISION)
        w_g = tl.load(at + 2 * E * D, mask=is_weight, other=0.0)
        summed = tl.dot(gated, w_g, summed, input_precision=PRECISION)
    is_out = (rows < N) & (d < D)
    residual = tl.load(x + rows * D + d, mask=is_out, other=0.0).to(dtype).to(tl.float32)
    tl.store(out + rows * D + d, (summed + residual).to(out.dtype.element_ty), mask=is_out)

"""HSTU attention over jagged rows as one operator: a Triton kernel on a GPU, plain torch on a CPU.

B rows, N elements of all rows together, L elements of one, W columns, H heads, A and V widths of a head's
queries and values.
"""

from dataclasses import astuple, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import triton_op, wrap_triton

from exporter.models.hstu.kernels.attention_kernel import hstu_attention_kernel
from exporter.models.hstu.kernels.launch import Launchable, by_columns, shared_bytes

# Bytes of shared memory that sm_80, sm_90 and sm_100 have; sm_86, sm_89 and sm_120 have 99 KB.
_LARGE = 160 << 10


@dataclass(frozen=True)
class AttentionForm:
    """Settings of the attention that are fixed in a model: columns of x, formula of weights, visibility.

    Of the columns of x, H * V from `v_column` on are an element's values, and H * A each its query and key.
    The last four are those of `exporter.models.hstu.attention.Visibility`.
    """

    v_column: int
    q_column: int
    k_column: int
    heads: int
    attention_dim: int
    hidden_dim: int
    alpha: float  # a score is alpha * q k
    divisor: float  # a weight is SiLU(score) / divisor
    prefix: int = 0
    window: int = 0
    sla_k1: int = 0
    sla_k2: int = 0
    tf32: bool = False  # products of fp32 may round their factors to TF32

    def __call__(self, x_NW: Tensor, offsets_B1: Tensor, candidates_B: Tensor | None) -> Tensor:
        """Call `hstu_attention` with these settings."""
        attended_NE: Tensor = hstu_attention(x_NW, offsets_B1, candidates_B, *astuple(self))
        return attended_NE

    @property
    def width(self) -> int:
        """Width E of the output: H * V."""
        return self.heads * self.hidden_dim


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Block sizes of the kernel: the part of a row's scores that a program computes at a time."""

    rows: int
    columns: int
    warps: int
    stages: int  # blocks of keys and values that are loaded at a time


def tiles_for(width: int, itemsize: int, shared: int) -> Tiles:
    """The tiles for heads that are `width` wide and numbers of so many bytes. Measured: docs/gpu-results.md.

    `shared` is how many bytes of shared memory a program may have.
    """
    if itemsize > 2:
        return _tiles_for_fp32(width, shared)
    if width <= 64:
        return Tiles(rows=64, columns=64, warps=4, stages=3)
    if width <= 128:
        return Tiles(rows=64, columns=32, warps=4, stages=3)
    if shared < _LARGE:
        return Tiles(rows=64, columns=32, warps=4, stages=2)
    return Tiles(rows=128, columns=64, warps=8, stages=2)


def _tiles_for_fp32(width: int, shared: int) -> Tiles:
    """Return the largest tiles that spill no registers; they have not been measured.

    Without tensor cores half as much fits into the registers. The tiles always have two stages: with one,
    keys and values are loaded from memory into registers, of which wide heads need too many (a thread then
    had 7 KB in local memory).
    """
    if width <= 128:
        return Tiles(rows=64, columns=32, warps=4, stages=2)
    if shared < _LARGE:
        return Tiles(rows=32, columns=16, warps=8, stages=2)
    return Tiles(rows=64, columns=32, warps=8, stages=2)


@triton_op("slipway::hstu_attention", mutates_args={})
def hstu_attention(  # noqa: PLR0913  an operator takes no structures
    x_NW: Tensor,
    offsets_B1: Tensor,
    candidates_B: Tensor | None,
    v_column: int,
    q_column: int,
    k_column: int,
    heads: int,
    attention_dim: int,
    hidden_dim: int,
    alpha: float,
    divisor: float,
    prefix: int = 0,
    window: int = 0,
    sla_k1: int = 0,
    sla_k2: int = 0,
    tf32: bool = False,
) -> Tensor:
    """Return the weighted sum of the values that each element sees, (N, H * V); see `AttentionForm`.

    Row b is the elements from offsets_B1[b] to offsets_B1[b + 1]; of these the last candidates_B[b] are
    candidates, which see the history and no other candidate. Products are summed in fp32.
    """
    form = AttentionForm(
        v_column, q_column, k_column, heads, attention_dim, hidden_dim, alpha, divisor,
        prefix, window, sla_k1, sla_k2, tf32,
    )  # fmt: skip
    out_NE = x_NW.new_empty((x_NW.shape[0], form.width))
    tiles = tiles_for(max(attention_dim, hidden_dim), x_NW.dtype.itemsize, shared_bytes(x_NW.device))
    candidates_B = None if candidates_B is None else candidates_B.contiguous()
    kernel = wrap_triton(hstu_attention_kernel)
    launch(kernel, form, tiles, by_columns(x_NW), offsets_B1.contiguous(), candidates_B, out_NE)
    return out_NE


def launch(  # noqa: PLR0913  what a kernel takes
    kernel: Launchable,
    form: AttentionForm,
    tiles: Tiles,
    x_NW: Tensor,
    offsets_B1: Tensor,
    candidates_B: Tensor | None,
    out_NE: Tensor,
    *,
    approximate: bool | None = None,
) -> None:
    """Launch `kernel` on a grid of all tiles; by default it approximates SiLU for numbers of 16 bits.

    The columns of x follow each other, and so do offsets and candidates.
    """
    rows = offsets_B1.shape[0] - 1
    kernel[(x_NW.shape[0] // tiles.rows + rows, form.heads)](
        x_NW,
        offsets_B1,
        candidates_B,
        out_NE,
        x_NW.shape[0],
        rows,
        x_NW.stride(0),
        form.v_column,
        form.q_column,
        form.k_column,
        form.alpha,
        form.divisor,
        H=form.heads,
        A=form.attention_dim,
        V=form.hidden_dim,
        CANDIDATES=candidates_B is not None,
        PREFIX=form.prefix,
        WINDOW=form.window,
        SLA_K1=form.sla_k1,
        SLA_K2=form.sla_k2,
        APPROXIMATE=x_NW.dtype.itemsize == 2 if approximate is None else approximate,
        PRECISION="tf32" if form.tf32 else "ieee",
        BLOCK_M=tiles.rows,
        BLOCK_N=tiles.columns,
        BLOCK_A=_block(form.attention_dim),
        BLOCK_V=_block(form.hidden_dim),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )


def attention_in_torch(
    form: AttentionForm, x_NW: Tensor, offsets_B1: Tensor, candidates_B: Tensor | None
) -> Tensor:
    """Compute the operator by its definition, row by row, on a CPU and as the reference of the kernel."""
    out_NE = x_NW.new_empty((x_NW.shape[0], form.width))
    offsets = offsets_B1.tolist()
    candidates = [None] * (len(offsets) - 1) if candidates_B is None else candidates_B.tolist()
    for start, end, own in zip(offsets[:-1], offsets[1:], candidates, strict=True):
        v_HLV, q_HLA, k_HLA = (
            x_NW[start:end, column : column + form.heads * width]
            .unflatten(1, (form.heads, width))
            .transpose(0, 1)
            for column, width in (
                (form.v_column, form.hidden_dim),
                (form.q_column, form.attention_dim),
                (form.k_column, form.attention_dim),
            )
        )
        seen_LL = visible(form, end - start, own).to(x_NW.device)
        weights_HLL = F.silu(q_HLA @ k_HLA.transpose(1, 2) * form.alpha) / form.divisor * seen_LL
        out_NE[start:end] = (weights_HLL @ v_HLV).transpose(0, 1).flatten(1)
    return out_NE


def visible(form: AttentionForm, length: int, candidates: int | None) -> Tensor:
    """Return booleans (L, L): whether an element of the first axis attends to one of the second.

    `candidates`: how many of the last ones are candidates; None where a model has none.
    """
    rows = torch.arange(length).unsqueeze(1)
    columns = rows.T
    history = length - (candidates or 0)
    if form.sla_k1 > 0 or form.sla_k2 > 0:
        near = columns > rows - form.sla_k1
        seen = (columns <= rows) & (near | (columns < max(form.sla_k2, form.prefix)))
        return seen if candidates is None else torch.where(rows >= history, columns < history, seen)
    # The whole prefix is at place 0, and all candidates are at one place behind the history.
    behind = history - max(form.prefix - 1, 0)
    places, others = ((each - max(form.prefix - 1, 0)).clamp(min=0, max=behind) for each in (rows, columns))
    seen = (rows == columns) | (places > others)
    if form.window > 0:
        seen = seen & (places - others <= form.window)
    return seen | ((places == 0) & (others < behind)) if form.prefix > 0 else seen


@hstu_attention.register_kernel("cpu")  # type: ignore[untyped-decorator]  # torch leaves it untyped
def _on_cpu(x_NW: Tensor, offsets_B1: Tensor, candidates_B: Tensor | None, *form: Any) -> Tensor:
    return attention_in_torch(AttentionForm(*form), x_NW, offsets_B1, candidates_B)


def _block(width: int) -> int:
    """Return the smallest power of two that holds `width` and that tensor cores accept."""
    return max(16, 1 << (width - 1).bit_length())

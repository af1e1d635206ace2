"""Output of an STU layer, x + [u, a, u * norm(a)] @ W, as one operator: Triton on a GPU, torch on a CPU.

N elements, E width of the gate u and of what was attended to, D width of x and of the result.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import triton_op, wrap_triton

from exporter.models.hstu.kernels.launch import Launchable, by_columns
from exporter.models.hstu.kernels.output_kernel import gate_kernel, project_kernel

_GATED = 2048  # numbers that one program of gate_kernel norms
_AT_ONCE = 64  # numbers of an element that project_kernel reads at a time to norm them


@dataclass(frozen=True, kw_only=True)
class Norm:
    """Norm of the attention's output."""

    weight: Tensor  # (E,), or (heads,)
    bias: Tensor
    heads: int  # heads that are normed one by one; 0: all together
    eps: float

    def group(self, inner: int) -> int:
        """Return how many of the `inner` numbers are normed together."""
        return inner // self.heads if self.heads else inner


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Block sizes of project_kernel: the part of the result per program, its steps and its warps."""

    rows: int
    columns: int
    step: int
    warps: int
    stages: int


def is_fused(inner: int, width: int, heads: int, dtype: torch.dtype) -> bool:
    """Return whether one kernel does all of it, instead of a kernel up to the product and then cuBLAS.

    The choice depends only on sizes that are known in a trace, which N is not. docs/gpu-results.md has the
    measurements.
    """
    group = inner // heads if heads else 16
    fits = group in (16, 32, 64)  # one head is one step of the product
    return dtype.itemsize == 2 and fits and inner <= 256 and width <= 128


def tiles_for(inner: int, width: int, heads: int, itemsize: int) -> Tiles:
    """Return tiles whose factors fit into the shared memory of every GPU since 2020."""
    step = power_of_two(inner // heads) if heads else 32
    if itemsize == 4:  # without tensor cores each thread computes its part of the product by itself
        return Tiles(rows=32, columns=32, step=step, warps=4, stages=1)
    rows, columns = 128 if step <= 64 else 64, min(128, power_of_two(width))
    return Tiles(rows=rows, columns=columns, step=step, warps=8, stages=2 if step <= 64 else 1)


@triton_op("slipway::gated_output", mutates_args={})
def gated_output(  # noqa: PLR0913  an operator takes no structures
    x_ND: Tensor,
    uvqk_NW: Tensor,
    attended_NE: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    output_weight: Tensor,
    u_column: int,
    heads: int,
    eps: float,
    tf32: bool = False,
) -> Tensor:
    """The sum (N, D) in the dtype of `uvqk_NW`, to which x and W are rounded first.

    u is the silu of the E columns of `uvqk_NW` from `u_column` on. The norm is of each of so many `heads`, or
    of all E numbers if that is 0. Products of fp32 numbers are exact to fp32 unless torch allows TF32, or
    `tf32` where one kernel does all of it.
    """
    elements, inner = attended_NE.shape
    dtype, width = uvqk_NW.dtype, x_ND.shape[1]
    uvqk_NW, attended_NE = by_columns(uvqk_NW), attended_NE.contiguous()
    norm = Norm(weight=norm_weight.contiguous(), bias=norm_bias.contiguous(), heads=heads, eps=eps)
    if is_fused(inner, width, heads, dtype):
        out = uvqk_NW.new_empty((elements, width))
        project_into(
            out,
            x_ND.contiguous(),
            uvqk_NW,
            attended_NE,
            output_weight.to(dtype).contiguous(),
            norm,
            tiles_for(inner, width, heads, dtype.itemsize),
            u_column=u_column,
            tf32=tf32,
            kernel=wrap_triton(project_kernel),
        )
        return out
    y = uvqk_NW.new_empty((elements, 3 * inner))
    gate_into(y, uvqk_NW, attended_NE, norm, u_column=u_column, kernel=wrap_triton(gate_kernel))
    return torch.addmm(x_ND.to(dtype), y, output_weight.to(dtype))


def gate_into(
    y: Tensor, uvqk_NW: Tensor, attended_NE: Tensor, norm: Norm, *, u_column: int, kernel: Launchable
) -> None:
    """Launch `gate_kernel`, which writes [u, a, u * norm(a)], (N, 3 * E)."""
    elements, inner = attended_NE.shape
    group = norm.group(inner)
    block = power_of_two(group)
    rows = max(1, _GATED // block)
    kernel[((elements + rows - 1) // rows * (inner // group),)](
        uvqk_NW,
        attended_NE,
        norm.weight,
        norm.bias,
        y,
        elements,
        uvqk_NW.stride(0),
        u_column,
        norm.eps,
        E=inner,
        G=group,
        GROUPED=norm.heads > 0,
        BLOCK_N=rows,
        BLOCK_G=block,
        num_warps=4,
    )


def project_into(  # noqa: PLR0913  what the kernel takes
    out_ND: Tensor,
    x_ND: Tensor,
    uvqk_NW: Tensor,
    attended_NE: Tensor,
    weight: Tensor,
    norm: Norm,
    tiles: Tiles,
    *,
    u_column: int,
    tf32: bool,
    kernel: Launchable,
) -> None:
    """Launch `project_kernel`, which computes the whole operator."""
    elements, inner = attended_NE.shape
    width = x_ND.shape[1]
    across = (width + tiles.columns - 1) // tiles.columns
    kernel[((elements + tiles.rows - 1) // tiles.rows * across,)](
        x_ND,
        uvqk_NW,
        attended_NE,
        norm.weight,
        norm.bias,
        weight,
        out_ND,
        elements,
        uvqk_NW.stride(0),
        u_column,
        norm.eps,
        E=inner,
        D=width,
        G=norm.group(inner),
        GROUPED=norm.heads > 0,
        PRECISION="tf32" if tf32 else "ieee",
        BLOCK_N=tiles.rows,
        BLOCK_D=tiles.columns,
        BLOCK_K=tiles.step,
        BLOCK_E=min(_AT_ONCE, power_of_two(inner)),
        num_warps=tiles.warps,
        num_stages=tiles.stages,
    )


def power_of_two(width: int) -> int:
    """Return the smallest power of two that holds `width` and that tensor cores accept."""
    return max(16, 1 << (width - 1).bit_length())


def gated_output_in_torch(
    x_ND: Tensor, uvqk_NW: Tensor, attended_NE: Tensor, weight: Tensor, norm: Norm, *, u_column: int
) -> Tensor:
    """Compute `gated_output` in plain torch, by its definition."""
    dtype = uvqk_NW.dtype
    u_NE = F.silu(uvqk_NW[:, u_column : u_column + attended_NE.shape[1]])
    y = torch.cat([u_NE, attended_NE, u_NE * _norm(attended_NE.to(norm.weight.dtype), norm)], dim=1)
    return torch.addmm(x_ND.to(dtype), y.to(dtype), weight.to(dtype))


@gated_output.register_kernel("cpu")  # type: ignore[untyped-decorator]  # torch leaves it untyped
def _on_cpu(  # noqa: PLR0913  as the operator
    x_ND: Tensor,
    uvqk_NW: Tensor,
    attended_NE: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    output_weight: Tensor,
    u_column: int,
    heads: int,
    eps: float,
    tf32: bool = False,  # noqa: ARG001  of no meaning to a CPU
) -> Tensor:
    norm = Norm(weight=norm_weight, bias=norm_bias, heads=heads, eps=eps)
    return gated_output_in_torch(x_ND, uvqk_NW, attended_NE, output_weight, norm, u_column=u_column)


def _norm(a_NE: Tensor, norm: Norm) -> Tensor:
    if norm.heads == 0:
        return F.layer_norm(a_NE, a_NE.shape[1:], norm.weight, norm.bias, norm.eps)
    a_NHV = a_NE.unflatten(1, (norm.heads, -1))
    normed_NHV = F.layer_norm(a_NHV, a_NHV.shape[2:], eps=norm.eps)
    return (normed_NHV * norm.weight.unsqueeze(1) + norm.bias.unsqueeze(1)).flatten(1)

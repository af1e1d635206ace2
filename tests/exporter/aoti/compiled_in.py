"""An operator with a Triton kernel, as a family's own module or Slipway's would make one."""

# Triton annotates neither its decorators nor what they decorate.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import triton_op, wrap_triton


@triton.jit
def _doubled(x_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 2 * tl.load(x_ptr + at, mask=at < count), mask=at < count)


@triton_op("slipway_tests::doubled", mutates_args={})
def doubled(x: Tensor) -> Tensor:
    """Twice the numbers."""
    out = torch.empty_like(x)
    wrap_triton(_doubled)[(x.numel() // 128 + 1,)](x, out, x.numel(), BLOCK=128)
    return out


@doubled.register_kernel("cpu")
def _on_cpu(x: Tensor) -> Tensor:
    return 2 * x

"""Jagged to padded and back as operators: Triton kernels on a GPU, plain torch on a CPU.

B rows, N elements of all rows together, L places of a padded row, D width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.library import triton_op, wrap_triton

from exporter.models.hstu.kernels.jagged_kernel import to_jagged_kernel, to_padded_kernel
from exporter.models.hstu.kernels.launch import Launchable

_BLOCK = 2048


@triton_op("slipway::jagged_to_padded", mutates_args={})
def jagged_to_padded(values_ND: Tensor, offsets_B1: Tensor, longest: int) -> Tensor:
    """(N, D) to (B, longest, D): zeros behind a row's elements, and longer rows are cut."""
    padded = values_ND.new_empty((offsets_B1.shape[0] - 1, longest, values_ND.shape[1]))
    pad_into(padded, values_ND.contiguous(), offsets_B1.contiguous(), kernel=wrap_triton(to_padded_kernel))
    return padded


@triton_op("slipway::padded_to_jagged", mutates_args={})
def padded_to_jagged(padded_BLD: Tensor, offsets_B1: Tensor, total: int) -> Tensor:
    """(B, L, D) to (total, D): zeros where a row has more than L elements."""
    values = padded_BLD.new_empty((total, padded_BLD.shape[2]))
    kernel = wrap_triton(to_jagged_kernel)
    unpad_into(values, padded_BLD.contiguous(), offsets_B1.contiguous(), kernel=kernel)
    return values


def pad_into(padded_BLD: Tensor, values_ND: Tensor, offsets_B1: Tensor, *, kernel: Launchable) -> None:
    """Launch `to_padded_kernel` over contiguous tensors."""
    rows, longest, width = padded_BLD.shape
    blocks = (longest * width + _BLOCK - 1) // _BLOCK
    kernel[(rows * blocks,)](values_ND, offsets_B1, padded_BLD, longest, width, blocks, BLOCK=_BLOCK)


def unpad_into(values_ND: Tensor, padded_BLD: Tensor, offsets_B1: Tensor, *, kernel: Launchable) -> None:
    """Launch `to_jagged_kernel` over contiguous tensors."""
    rows, longest, width = padded_BLD.shape
    blocks = (longest * width + _BLOCK - 1) // _BLOCK
    kernel[(rows * blocks,)](
        padded_BLD, offsets_B1, values_ND, rows, values_ND.shape[0], longest, width, blocks, BLOCK=_BLOCK
    )


@jagged_to_padded.register_kernel("cpu")  # type: ignore[untyped-decorator]  # torch leaves it untyped
def _pad_on_cpu(values_ND: Tensor, offsets_B1: Tensor, longest: int) -> Tensor:
    places = torch.arange(longest)
    is_there = places < offsets_B1.diff().unsqueeze(1)
    # One row of zeros behind the values: where places behind a row's end look, even if there are no values.
    index = torch.where(is_there, offsets_B1[:-1].unsqueeze(1) + places, values_ND.shape[0])
    return F.pad(values_ND, (0, 0, 0, 1))[index]


@padded_to_jagged.register_kernel("cpu")  # type: ignore[untyped-decorator]  # torch leaves it untyped
def _unpad_on_cpu(padded_BLD: Tensor, offsets_B1: Tensor, total: int) -> Tensor:
    values = padded_BLD.new_zeros((total, padded_BLD.shape[2]))
    places = torch.arange(padded_BLD.shape[1])
    is_there = places < offsets_B1.diff().unsqueeze(1)
    values[(offsets_B1[:-1].unsqueeze(1) + places)[is_there]] = padded_BLD[is_there]
    return values

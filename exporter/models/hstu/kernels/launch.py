"""Types of Triton kernels to launch, compiled or interpreted, and the limits of the device they run on."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

_OF_SM_90 = 227 << 10


class Launchable(Protocol):
    """`kernel[grid](arguments)`."""

    def __getitem__(self, grid: tuple[int, ...], /) -> Callable[..., object]: ...


def by_columns(matrix: Tensor) -> Tensor:
    """Return a matrix with contiguous columns, as kernels read it; its rows may have gaps between them."""
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()


def shared_bytes(device: torch.device) -> int:
    """Return the shared memory, in bytes, of a program on this device; that of an sm_90 without a GPU."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return _OF_SM_90
    properties = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)  # type: ignore[attr-defined]  # torch's stubs lack it

"""What launches, a Triton kernel as an operator wraps it or as the interpreter runs it; and what it needs."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

_OF_SM_90 = 227 << 10


class Launchable(Protocol):
    """`kernel[grid](arguments)`."""

    def __getitem__(self, grid: tuple[int, ...], /) -> Callable[..., object]: ...


def by_columns(matrix: Tensor) -> Tensor:
    """A matrix whose rows may be apart, and whose columns follow each other, as kernels read it."""
    return matrix if matrix.stride(1) == 1 else matrix.contiguous()


def shared_bytes(device: torch.device) -> int:
    """How much shared memory a program on this device may have; of an sm_90 where there is no GPU to ask."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return _OF_SM_90
    properties = torch.cuda.get_device_properties(device)
    return int(properties.shared_memory_per_block_optin)  # type: ignore[attr-defined]  # torch's stubs lack it

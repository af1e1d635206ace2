"""Limit on the memory of the values that a search keeps, so that it stops before the kernel kills it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

LIMIT_BYTES = 4 << 30


class MemoryBudgetExceeded(Exception):
    """The values that a search keeps take more memory than it may use."""

    def __init__(self) -> None:
        super().__init__(
            f"No smaller case was searched for: the values between the operators take more than "
            f"{LIMIT_BYTES >> 30} GiB."
        )


@dataclass
class MemoryBudget:
    """Counter of the bytes of computed values; weights, inputs and views of them are not counted."""

    used_bytes: int = 0
    _counted: set[int | None] = field(default_factory=set)  # addresses

    def exclude(self, values: Iterable[object]) -> None:
        """Do not count the memory of these values, which exists anyway."""
        self._counted.update(storage_address(value) for value in values)

    def charge(self, values: Iterable[object]) -> None:
        """Count the memory of these values, except memory that is counted or excluded already.

        Raises:
            MemoryBudgetExceeded: the sum is above the limit.
        """
        for value in values:
            address = storage_address(value)
            if isinstance(value, Tensor) and address is not None and address not in self._counted:
                self._counted.add(address)
                self.used_bytes += value.untyped_storage().nbytes()
        if self.used_bytes > LIMIT_BYTES:
            raise MemoryBudgetExceeded


def storage_address(value: object) -> int | None:
    """Return the address of a tensor's memory, or None for a value without memory of its own."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.device.type == "meta":
        return None
    return value.untyped_storage().data_ptr()

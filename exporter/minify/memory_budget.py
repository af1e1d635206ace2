"""How much memory the values take that a search keeps: it ends before the kernel would end it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

LIMIT_BYTES = 4 << 30


class MemoryBudgetExceeded(Exception):
    """More would be kept than a search may take."""

    def __init__(self) -> None:
        super().__init__(
            f"No smaller case was searched for: the values between the operators take more than "
            f"{LIMIT_BYTES >> 30} GiB."
        )


@dataclass
class MemoryBudget:
    """Counts what was made; weights and inputs, and views of them, are there anyway."""

    made: int = 0
    _known: set[int | None] = field(default_factory=set)

    def exclude(self, values: Iterable[object]) -> None:
        """These take nothing more."""
        self._known.update(storage_address(value) for value in values)

    def charge(self, values: Iterable[object]) -> None:
        """These were made, unless they lie where something known does.

        Raises:
            TooLarge: all of it is above the limit.
        """
        for value in values:
            memory = storage_address(value)
            if isinstance(value, Tensor) and memory is not None and memory not in self._known:
                self._known.add(memory)
                self.made += value.untyped_storage().nbytes()
        if self.made > LIMIT_BYTES:
            raise MemoryBudgetExceeded


def storage_address(value: object) -> int | None:
    """The address of a tensor's memory; None of anything that has none of its own."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.device.type == "meta":
        return None
    return value.untyped_storage().data_ptr()

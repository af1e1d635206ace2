"""A check of a kernel on a GPU with random sizes and inputs, drawn from a seed."""

import random
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor

CUDA = torch.device("cuda")
# Errors allowed for rounding to each dtype; sums are in fp32.
BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


class KernelCheck(Protocol):
    """Runs a kernel on random inputs, and returns `references.error_of` its output."""

    def __call__(self, chance: random.Random, /) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel with one kind of input."""

    name: str
    bound: float
    check: KernelCheck

    def error(self, seed: int) -> float:
        """Return the kernel's error with the inputs of this seed."""
        torch.manual_seed(seed)
        return self.check(random.Random(seed))  # noqa: S311  inputs are no secrets


@contextmanager
def poison_allocations() -> Iterator[None]:
    """Let torch fill new memory with NaN or the largest integer, so that nothing is right by chance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cuBLAS need not be deterministic here
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(mode=False)


def lengths_of(chance: random.Random, *, block: int, highest: int) -> list[int]:
    """Draw row lengths: none, one, around a block, and any; empty rows are first, last and between."""
    edges = [0, 1, block - 1, block, block + 1]
    rows = [*edges, *(chance.randrange(highest + 1) for _ in range(chance.randrange(1, 60)))]
    chance.shuffle(rows)
    return [0, *rows, 0]


def offsets_of(lengths: Sequence[int]) -> Tensor:
    """Return the start of each row, and the sum of all lengths, on the GPU."""
    return torch.tensor([0, *accumulate(lengths)], device=CUDA)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return normally distributed random numbers on the GPU."""
    return torch.randn(*shape, device=CUDA).to(dtype)


def name_of(dtype: torch.dtype) -> str:
    """Return a dtype's name without the leading `torch.`."""
    return str(dtype).removeprefix("torch.")

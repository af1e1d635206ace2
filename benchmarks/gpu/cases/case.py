"""A check of a kernel on a GPU: sizes and inputs are drawn anew from the seed that it is run with."""

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
# What rounding to a dtype may cost; sums are in fp32.
BOUNDS = {torch.float32: 2e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}


class Check(Protocol):
    """Runs a kernel on inputs that chance decides, and returns `references.error_of` what it computes."""

    def __call__(self, chance: random.Random, /) -> float: ...


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kernel, one kind of input."""

    name: str
    bound: float
    check: Check

    def error(self, seed: int) -> float:
        """How far the kernel is off with the inputs of this seed."""
        torch.manual_seed(seed)
        return self.check(random.Random(seed))  # noqa: S311  inputs are no secrets


@contextmanager
def poisoned() -> Iterator[None]:
    """Inside, torch fills what it allocates with NaN, or the largest integer: nothing is right by chance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that cuBLAS is not deterministic does not matter here
        torch.use_deterministic_algorithms(mode=True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(mode=False)


def lengths_of(chance: random.Random, *, block: int, highest: int) -> list[int]:
    """Of some rows: none, one, around a block, and anything; empty rows are first, last and between."""
    edges = [0, 1, block - 1, block, block + 1]
    rows = [*edges, *(chance.randrange(highest + 1) for _ in range(chance.randrange(1, 60)))]
    chance.shuffle(rows)
    return [0, *rows, 0]


def offsets_of(lengths: Sequence[int]) -> Tensor:
    """Where each row starts, and the sum, on the GPU."""
    return torch.tensor([0, *accumulate(lengths)], device=CUDA)


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random numbers on the GPU."""
    return torch.randn(*shape, device=CUDA).to(dtype)


def name_of(dtype: torch.dtype) -> str:
    """Without the `torch.` in front."""
    return str(dtype).removeprefix("torch.")

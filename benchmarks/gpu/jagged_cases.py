"""Jagged to padded and back on a GPU, exactly: widths beyond and beside powers of two, and one."""

import random
from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from benchmarks.gpu.cases import references
from benchmarks.gpu.cases.case import Case, lengths_of, name_of, normal, offsets_of, poisoned
from exporter.models.blocks.jagged_gathers import cumulated
from exporter.models.hstu.kernels.jagged import jagged_to_padded, padded_to_jagged

_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64)


def jagged_cases() -> Iterator[Case]:
    for dtype, width in product(_DTYPES, (1, 7, 64, 513)):
        kind = f"{name_of(dtype)}-{width}"
        yield Case(name=f"pad-{kind}", bound=0, check=partial(_padded, dtype=dtype, width=width))
        yield Case(name=f"unpad-{kind}", bound=0, check=partial(_unpadded, dtype=dtype, width=width))
    yield Case(name="jagged-compiled", bound=0, check=_compiled)


def _padded(chance: random.Random, *, dtype: torch.dtype, width: int) -> float:
    lengths, longest = _rows(chance, width)
    values = (normal(sum(lengths), width) * 100).to(dtype)
    with poisoned():
        out = jagged_to_padded(values, offsets_of(lengths), longest)
    return references.error_of(out, references.padded(values, lengths, longest))


def _unpadded(chance: random.Random, *, dtype: torch.dtype, width: int) -> float:
    lengths, longest = _rows(chance, width)
    padded = (normal(len(lengths) * longest, width) * 100).to(dtype).view(-1, longest, width)
    with poisoned():
        out = padded_to_jagged(padded, offsets_of(lengths), sum(lengths))
    return references.error_of(out, references.jagged(padded, lengths))


def _rows(chance: random.Random, width: int) -> tuple[list[int], int]:
    """Lengths, some around what one program copies, and a padding that is shorter than some or longer."""
    lengths = lengths_of(chance, block=max(2, 2048 // width), highest=300)
    return lengths, chance.choice([2, max(lengths) // 2 + 2, max(lengths) + 3])


def _compiled(chance: random.Random) -> float:
    """There and back as torch.compile takes the operators apart, at several sizes of one program."""
    compiled = torch.compile(_there_and_back, dynamic=True, fullgraph=True)
    errors = []
    for _ in range(3):
        lengths = lengths_of(chance, block=32, highest=100)
        values = normal(sum(lengths), 48)
        out = compiled(values, offsets_of(lengths).diff(), max(lengths))
        errors.append(references.error_of(out, values))
    return max(errors)


def _there_and_back(values: Tensor, lengths: Tensor, longest: int) -> Tensor:
    offsets = cumulated(lengths)
    back: Tensor = padded_to_jagged(jagged_to_padded(values, offsets, longest), offsets, values.shape[0])
    return back

"""Checks of position and time encoding on a GPU; the ages include edges of buckets."""

import random
from collections.abc import Iterator
from functools import partial
from itertools import product

import torch
from torch import Tensor

from benchmarks.gpu.cases import references
from benchmarks.gpu.cases.case import (
    BOUNDS,
    CUDA,
    Case,
    lengths_of,
    name_of,
    normal,
    offsets_of,
    poison_allocations,
)
from exporter.models.hstu.kernels.position import Times, encode_positions


def position_cases() -> Iterator[Case]:
    for dtype, has_candidates in product((torch.float32, torch.bfloat16), (False, True)):
        kind = f"{name_of(dtype)}{'-candidates' * has_candidates}"
        plain = partial(_without_time, dtype=dtype, has_candidates=has_candidates)
        yield Case(name=f"position-{kind}", bound=BOUNDS[dtype], check=plain)
        for log, has_query in product((False, True), (False, True)):
            name = f"position-{'log' if log else 'sqrt'}-{kind}{'-query' * has_query}"
            check = partial(
                _with_time, dtype=dtype, has_candidates=has_candidates, log=log, has_query=has_query
            )
            yield Case(name=name, bound=BOUNDS[dtype], check=check)
    yield Case(name="position-compiled", bound=0, check=_compiled_error)


def _without_time(chance: random.Random, *, dtype: torch.dtype, has_candidates: bool) -> float:
    lengths, width = _rows(chance)
    return _error(chance, normal(sum(lengths), width, dtype=dtype), lengths, None, has_candidates)


def _with_time(
    chance: random.Random, *, dtype: torch.dtype, has_candidates: bool, log: bool, has_query: bool
) -> float:
    lengths, width = _rows(chance)
    whole = torch.randint(0, 120, (sum(lengths),), device=CUDA)
    # Square numbers of minutes have whole roots, which are edges of buckets.
    ages = torch.where(whole % 2 == 0, whole * whole * 60, whole * 977)
    times = Times(
        timestamps=(10_000_000 - ages).float(),
        query_time=torch.full((len(lengths),), 1e7, device=CUDA) if has_query else None,
        weight=normal(101, width, dtype=dtype),
        increments=1.0 if log else 60.0,
        log=log,
    )
    return _error(chance, normal(sum(lengths), width, dtype=dtype), lengths, times, has_candidates)


def _error(
    chance: random.Random, values: Tensor, lengths: list[int], times: Times | None, has_candidates: bool
) -> float:
    candidates = [chance.randrange(length + 1) for length in lengths] if has_candidates else None
    weight = normal(chance.randrange(8, 200), values.shape[1], dtype=values.dtype)
    scale, prefix = chance.random() * 20, chance.randrange(4)
    behind = None if candidates is None else torch.tensor(candidates, device=CUDA)
    given = () if times is None else _arguments(times)
    with poison_allocations():
        out = encode_positions(values, offsets_of(lengths), behind, weight, scale, prefix, *given)
    expected = references.add_positions(
        values, lengths, candidates, weight, times, scale=scale, prefix=prefix
    )
    return references.error_of(out, expected)


def _rows(chance: random.Random) -> tuple[list[int], int]:
    return lengths_of(chance, block=16, highest=200), chance.choice([1, 24, 64, 300])


def _arguments(times: Times) -> tuple[Tensor, Tensor | None, Tensor, float, bool]:
    return times.timestamps, times.query_time, times.weight, times.increments, times.log


def _compiled_error(chance: random.Random) -> float:
    """Compare the operator under torch.compile with itself, at several sizes of one program."""
    compiled = torch.compile(encode_positions, dynamic=True, fullgraph=True)
    errors = []
    for _ in range(3):
        lengths = lengths_of(chance, block=32, highest=100)
        values, weight, times = normal(sum(lengths), 48), normal(64, 48), normal(101, 48)
        stamps = torch.rand(sum(lengths), device=CUDA) * 1e6
        given = (values, offsets_of(lengths), None, weight, 7.0, 2, stamps, None, times, 60.0, False)
        out = compiled(*given)  # type: ignore[no-untyped-call]  # as operators are
        errors.append(references.error_of(out, encode_positions(*given)))
    return max(errors)

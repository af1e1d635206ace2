"""Jagged to padded and back: the kernels, interpreted, and the operators on a CPU."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, export

from benchmarks.gpu.cases import references
from exporter.models.blocks.jagged import as_size
from exporter.models.blocks.jagged_gathers import cumulated
from exporter.models.hstu.kernels.jagged import (
    jagged_to_padded,
    pad_into,
    padded_to_jagged,
    unpad_into,
)
from tests.exporter.models.hstu.kernels.conftest import Interpreted

# With 64 numbers an element, a program copies 32 elements.
EDGES = [0, 1, 31, 32, 33, 0, 65, 0]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.int64]

Pad = Callable[[Tensor, Tensor, int], Tensor]


def offsets_of(lengths: list[int]) -> Tensor:
    return cumulated(torch.tensor(lengths))


def numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(shape) * 100).to(dtype)


def poison(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.full(shape, torch.nan if dtype.is_floating_point else -(2**60), dtype=dtype)


@pytest.fixture(params=["kernel", "operator"])
def pad(request: pytest.FixtureRequest, interpreted: Interpreted) -> Pad:
    if request.param == "operator":
        operator: Pad = jagged_to_padded
        return operator
    kernel = interpreted("jagged_kernel").to_padded_kernel

    def pad(values: Tensor, offsets: Tensor, longest: int) -> Tensor:
        out = poison(len(offsets) - 1, longest, values.shape[1], dtype=values.dtype)
        pad_into(out, values, offsets, kernel=kernel)
        return out

    return pad


@pytest.fixture(params=["kernel", "operator"])
def unpad(request: pytest.FixtureRequest, interpreted: Interpreted) -> Pad:
    if request.param == "operator":
        operator: Pad = padded_to_jagged
        return operator
    kernel = interpreted("jagged_kernel").to_jagged_kernel

    def unpad(padded: Tensor, offsets: Tensor, total: int) -> Tensor:
        out = poison(total, padded.shape[2], dtype=padded.dtype)
        unpad_into(out, padded, offsets, kernel=kernel)
        return out

    return unpad


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 7, 64])
def test_rows_are_padded_with_zeros_or_cut(pad: Pad, dtype: torch.dtype, width: int) -> None:
    values = numbers(sum(EDGES), width, dtype=dtype)
    for longest in (2, 33, 70):
        out = pad(values, offsets_of(EDGES), longest)
        assert torch.equal(out, references.padded(values, EDGES, longest))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [1, 7, 64])
def test_what_lies_beyond_the_padding_becomes_zero(unpad: Pad, dtype: torch.dtype, width: int) -> None:
    for longest in (2, 33, 70):
        padded = numbers(len(EDGES), longest, width, dtype=dtype)
        out = unpad(padded, offsets_of(EDGES), sum(EDGES))
        assert torch.equal(out, references.jagged(padded, EDGES))


def test_elements_of_no_row_become_zero(unpad: Pad) -> None:
    out = unpad(numbers(2, 4, 3), offsets_of([4, 1]), 9)
    assert torch.equal(out[5:], torch.zeros(4, 3))


@pytest.mark.parametrize("lengths", [[0], [0, 0, 0]])
def test_rows_may_all_be_empty(pad: Pad, unpad: Pad, lengths: list[int]) -> None:
    padded = pad(torch.zeros(0, 5), offsets_of(lengths), 2)
    assert torch.equal(padded, torch.zeros(len(lengths), 2, 5))
    assert unpad(padded, offsets_of(lengths), 0).shape == (0, 5)


class ThereAndBack(nn.Module):
    def forward(self, values_ND: Tensor, lengths_B: Tensor) -> Tensor:
        offsets, longest = cumulated(lengths_B), as_size(lengths_B.max(), at_least=2)
        doubled = jagged_to_padded(values_ND, offsets, longest) * 2
        back: Tensor = padded_to_jagged(doubled, offsets, values_ND.shape[0])
        return back


def test_a_trace_keeps_both_sizes_open() -> None:
    shapes = {"values_ND": {0: Dim("N")}, "lengths_B": {0: Dim("B")}}
    program = export(ThereAndBack(), (numbers(9, 3), torch.tensor([4, 0, 5])), dynamic_shapes=shapes).module()
    for lengths in ([2, 3, 3, 1], [6, 0]):
        values = numbers(sum(lengths), 3)
        assert torch.equal(program(values, torch.tensor(lengths)), values * 2)

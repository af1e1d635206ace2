"""The replacements of fbgemm's operators on a GPU return the same as those, tested on the CPU."""

import pytest
import torch

from exporter.models.blocks import jagged, jagged_gathers

LENGTHS = ([2, 0, 3], [0, 0], [1], [0, 4, 0, 1], [5, 5])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_lengths_are_summed_as_fbgemm_does(lengths: list[int], dtype: torch.dtype) -> None:
    lengths_B = torch.tensor(lengths, dtype=dtype)
    expected = jagged.cumulative_offsets(lengths_B)
    found = jagged_gathers.cumulative_offsets(lengths_B)
    assert torch.equal(found, expected) and found.dtype == expected.dtype


@pytest.mark.parametrize("length", [1, 2, 3, 9])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_rows_are_padded_and_cut_as_fbgemm_does(lengths: list[int], length: int) -> None:
    values = torch.rand(sum(lengths), 3)
    offsets = jagged.cumulative_offsets(torch.tensor(lengths))
    expected = jagged.pad_to(values, offsets, length)
    assert torch.equal(jagged_gathers.pad(values, offsets, length), expected)


@pytest.mark.parametrize("lengths", LENGTHS)
def test_rows_are_unpadded_as_fbgemm_does(lengths: list[int]) -> None:
    layout = jagged.Layout.of(torch.tensor(lengths), total=sum(lengths))
    padded = torch.rand(len(lengths), layout.longest, 3)
    found = jagged_gathers.unpad(padded, layout.rows, layout.places)
    assert torch.equal(found, jagged.unpad(padded, layout))


def test_offsets_that_do_not_fit_lead_nowhere_outside() -> None:
    values, offsets = torch.rand(2, 3), torch.tensor([0, 4, 9])
    assert jagged_gathers.pad(values, offsets, 5).shape == (2, 5, 3)
    rows, places = torch.tensor([0, 1]), torch.tensor([7, -1])
    assert jagged_gathers.unpad(torch.rand(2, 4, 3), rows, places).shape == (2, 3)

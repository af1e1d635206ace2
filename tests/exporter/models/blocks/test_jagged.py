"""Jagged and padded are two spellings of the same rows."""

import pytest
import torch
from torch import Tensor

from exporter.models.blocks.jagged import Layout, RowJoin, first, last, pad, tail_index, unpad


@pytest.fixture
def layout() -> Layout:
    return Layout.of(torch.tensor([2, 0, 3]), total=5)


@pytest.fixture
def values() -> Tensor:
    return torch.arange(1.0, 11.0).view(5, 2)


def test_padding_comes_behind_each_row(layout: Layout, values: Tensor) -> None:
    padded = pad(values, layout)
    assert padded[0].tolist() == [[1, 2], [3, 4], [0, 0]]
    assert padded[1].tolist() == [[0, 0]] * 3


def test_unpadding_undoes_padding(layout: Layout, values: Tensor) -> None:
    assert torch.equal(unpad(pad(values, layout), layout), values)


def test_an_empty_row_has_neither_first_nor_last(layout: Layout, values: Tensor) -> None:
    assert last(values, layout).tolist() == [[3, 4], [0, 0], [9, 10]]
    assert first(values, layout.offsets).tolist() == [[1, 2], [0, 0], [5, 6]]


def test_two_jagged_tensors_are_joined_row_by_row(layout: Layout, values: Tensor) -> None:
    joined = RowJoin.of(layout, Layout.of(torch.tensor([0, 1, 2]), total=3))
    rows = joined.join(values, -torch.ones(3, 2))
    assert rows[:, 0].tolist() == [1, 3, -1, 5, 7, 9, -1, -1]
    assert joined.layout.lengths.tolist() == [2, 1, 5]


def test_the_same_number_may_stand_in_front_of_every_row(layout: Layout, values: Tensor) -> None:
    joined = RowJoin.of(Layout.uniform(1, like=layout), layout)
    assert joined.join(torch.zeros(3, 2), values)[:, 0].tolist() == [0, 1, 3, 0, 0, 5, 7, 9]


def test_tails_are_the_last_of_each_row(layout: Layout, values: Tensor) -> None:
    tail = Layout.of(torch.tensor([1, 0, 2]), total=3)
    assert values[tail_index(layout, tail)][:, 0].tolist() == [3, 7, 9]


def test_lengths_that_do_not_add_up_lead_nowhere_outside(values: Tensor) -> None:
    safe = Layout.of(torch.tensor([0, 0]), total=5)  # what is left of lengths that were refused
    assert RowJoin.of(safe, safe).join(values, values).shape == (10, 2)
    assert values[tail_index(safe, safe)].shape == (5, 2)


def test_places_count_from_the_start_of_each_row(layout: Layout) -> None:
    assert layout.rows.tolist() == [0, 0, 2, 2, 2]
    assert layout.places.tolist() == [0, 1, 0, 1, 2]


def test_rows_may_all_be_empty() -> None:
    layout = Layout.of(torch.tensor([0, 0]), total=0)
    assert last(torch.empty(0, 4), layout).tolist() == [[0] * 4] * 2
    assert unpad(pad(torch.empty(0, 4), layout), layout).shape == (0, 4)

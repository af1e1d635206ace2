"""A sample is random and yet from everywhere."""

import numpy as np
import pytest

from exporter.items.sample import sample_places


def test_every_stretch_gives_one_row() -> None:
    places = sample_places(1_000_003, 1000, seed=1)
    assert len(places) == 1000
    assert np.array_equal(np.unique(places * 1000 // 1_000_003), np.arange(1000))


@pytest.mark.parametrize("count", [5, 6, 100])
def test_a_sample_of_all_is_all(count: int) -> None:
    assert sample_places(5, count, seed=1).tolist() == [0, 1, 2, 3, 4]


def test_it_is_the_same_again_and_another_by_another_seed() -> None:
    assert np.array_equal(sample_places(10**9, 50, seed=1), sample_places(10**9, 50, seed=1))
    assert not np.array_equal(sample_places(10**9, 50, seed=1), sample_places(10**9, 50, seed=2))

import numpy as np
import pytest

from exporter.data.counts import (
    HIGH,
    LOW,
    MIDDLE,
    climb,
    draw,
    fit_ladder,
    high_counts,
    limit_total,
    raise_total,
    spread,
)


def test_the_ladder_has_every_power_of_two_with_its_neighbours() -> None:
    powers = [2**power for power in range(2, 11)]
    assert {count + step for count in powers for step in (-1, 0, 1)} <= {*LOW, *MIDDLE, *HIGH}


@pytest.mark.parametrize(
    ("ladder", "most", "fitting"),
    [
        (LOW, 4097, LOW),
        (LOW, 4, (0, 1, 2, 3, 4)),
        (MIDDLE, 96, (*range(18, 34), 63, 64, 65, 95, 96)),
        (MIDDLE, 20, (18, 19, 20)),
        (LOW, 0, (0,)),
    ],
)
def test_a_ladder_ends_at_the_most(ladder: tuple[int, ...], most: int, fitting: tuple[int, ...]) -> None:
    assert fit_ladder(ladder, most) == fitting


def test_the_ladder_goes_on_for_rows_that_hold_more() -> None:
    assert high_counts(4097) == HIGH
    assert high_counts(40_000) == (*HIGH, 8193, 16385, 32769, 65537)


@pytest.mark.parametrize("shift", [0, 1, 20])
def test_climbing_meets_every_count_and_then_small_ones(shift: int) -> None:
    counts = climb(LOW, 4097, 22, shift)
    assert sorted(counts[:17]) == list(LOW)
    assert counts[17:].tolist() == [0, 1, 2, 3, 0]


def test_two_features_never_climb_alike() -> None:
    first, second = climb(LOW, 100, 19, 0), climb(LOW, 100, 19, 1)
    assert (first[:17] != second[:17]).all()


def test_totals_are_held_within_bounds() -> None:
    counts = np.array([3, 4, 5])
    assert limit_total(counts, 8).tolist() == [3, 4, 1]
    assert limit_total(counts, None).tolist() == [3, 4, 5]
    assert raise_total(np.zeros(2, dtype=np.int64), 5).tolist() == [5, 0]
    assert raise_total(counts, 5).tolist() == [3, 4, 5]
    assert spread(7, 3).tolist() == [3, 2, 2]


def test_counts_of_every_order_of_magnitude_are_drawn() -> None:
    drawn = draw(np.random.default_rng(0), 4097, 2000)
    assert drawn.min() == 0
    assert 3000 < drawn.max() <= 4097
    assert 0.2 < np.mean(drawn < 8) < 0.4

"""What is said of a figure that was measured several times."""

import pytest

from benchmarks.harness.statistics import Spread, percentile, ratios, rounded, slope


def test_a_spread_is_the_median_and_the_extremes() -> None:
    spread = Spread.of([3.0, 1.0, 2.0, 10.0, 2.5])
    assert (spread.median, spread.low, spread.high) == (2.5, 1.0, 10.0)
    assert spread.text() == "2.50 (1.00 to 10.0)"


def test_ratios_are_taken_round_by_round() -> None:
    both_slow_at_the_end = ratios([2.0, 2.0, 20.0], [1.0, 1.0, 10.0])
    assert both_slow_at_the_end.values == (2.0, 2.0, 2.0)


def test_rounds_that_were_not_measured_together_are_refused() -> None:
    with pytest.raises(ValueError, match="longer"):
        ratios([1.0], [1.0, 2.0])


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50.0), (0.99, 99.0), (1.0, 100.0), (0.0, 1.0)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert percentile([float(each) for each in range(100, 0, -1)], share) == expected


def test_the_slope_is_that_of_the_line_that_fits_best() -> None:
    assert slope([0.0, 1.0, 2.0, 3.0], [5.0, 5.2, 5.4, 5.6]) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("value", "expected"), [(0.0123456, "0.0123"), (1234.56, "1,235"), (0, "0"), (9.996, "10.00")]
)
def test_figures_keep_three_digits(value: float, expected: str) -> None:
    assert rounded(value) == expected

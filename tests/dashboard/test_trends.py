"""Where plots over releases put their points and ticks."""

import pytest

from service.dashboard.models.trends import Figure, Line, Trend, TrendChart, draw_trend


def drawn(*values: float | None, limit: float | None = None, marked: int | None = None) -> TrendChart:
    figures = tuple(None if value is None else Figure(value, f"{value}") for value in values)
    trend = Trend(id="t", title="T", unit="u", lines=(Line("user", figures),), limit=limit)
    return draw_trend(trend, [f"r{number}" for number in range(len(values))], marked)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((2.0, 4.1), "0 2 4 6"),
        ((0.71, 0.72), "0.71 0.715 0.72"),  # from zero they could not be told apart
        ((5.0,), "0 2 4 6"),
        ((0.0, 0.0), "0 0.5 1"),
        ((-3.0, 1.0), "-3 -2 -1 0 1"),
        ((-2.0,), "-3 -2.5 -2"),
    ],
)
def test_the_axis_has_round_numbers_around_all_values(values: tuple[float, ...], labels: str) -> None:
    assert [tick.label for tick in drawn(*values).y_ticks] == labels.split()


def test_higher_values_are_higher_up_and_later_releases_further_right() -> None:
    [series] = drawn(1.0, 3.0, 2.0).series
    first, second, third = series.points
    assert first.x < second.x < third.x
    assert first.y > third.y > second.y
    assert series.points[0].label == "user, r0: 1.0"


def test_a_release_without_a_figure_is_left_out_of_the_line() -> None:
    [series] = drawn(1.0, None, 2.0).series
    assert [point.label[-3:] for point in series.points] == ["1.0", "2.0"]


def test_everything_lies_within_the_plot() -> None:
    chart = drawn(0.2, 7.9, 3.0, limit=9.5, marked=1)
    assert chart.limit is not None and chart.marked is not None
    points = [point for series in chart.series for point in series.points]
    assert all(
        chart.left < point.x < chart.right and chart.top <= point.y <= chart.bottom for point in points
    )
    assert chart.top <= chart.limit <= chart.bottom
    assert chart.marked == points[1].x


def test_names_of_many_releases_are_thinned_out_and_the_last_is_kept() -> None:
    chart = drawn(*map(float, range(1, 21)))
    assert len(chart.x_ticks) < 6 and chart.x_ticks[-1].label == "r19"

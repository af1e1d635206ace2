"""Plots stay inside their frame and read from left to right."""

import pytest

from exporter.manifest import Latency, VerificationReport
from exporter.spec import TowerName
from service.dashboard.charts import Chart, error_chart, latency_chart
from tests.dashboard.sample import entry


def report(*times: tuple[int, float, float]) -> VerificationReport:
    latency = tuple(Latency(batch=batch, eager_ms=eager, compiled_ms=ours) for batch, eager, ours in times)
    return VerificationReport(tolerance=1e-5, largest_difference=0, cases=(), latency=latency)


def assert_fits(chart: Chart) -> None:
    for series in chart.series:
        assert [point.x for point in series.points] == sorted(point.x for point in series.points)
        for point in series.points:
            assert chart.left <= point.x <= chart.right
            assert chart.top <= point.y <= chart.bottom


def test_errors_stand_below_what_is_allowed() -> None:
    chart = error_chart(entry(TowerName.USER, 1.0).verified)
    assert chart is not None and chart.limit is not None
    assert_fits(chart)
    assert all(point.y > chart.limit for point in chart.series[0].points)


def test_no_difference_at_all_stands_at_the_bottom() -> None:
    chart = error_chart(entry(TowerName.ITEM, 1.0).verified)
    assert chart is not None
    assert {point.y for point in chart.series[0].points} == {chart.bottom}
    assert chart.y_ticks[0].label == "equal"


def test_a_report_without_cases_has_no_plot() -> None:
    assert error_chart(report()) is None


@pytest.mark.parametrize(
    "times",
    [((1, 4.0, 1.0), (512, 400.0, 200.0)), ((32, 1.0, 1.0), (64, 1.0, 1.0)), ((2, 0.0, 0.0), (4, 0.0, 3.0))],
)
def test_times_fit(times: tuple[tuple[int, float, float], ...]) -> None:
    chart = latency_chart(report(*times))
    assert chart is not None
    assert_fits(chart)


def test_an_axis_is_labelled_as_people_write_numbers() -> None:
    chart = latency_chart(report((1, 0.02, 0.05), (32, 9.0, 1.0)))
    assert chart is not None
    assert [tick.label for tick in chart.y_ticks] == ["0.01", "0.1", "1", "10"]


def test_one_size_makes_no_line() -> None:
    assert latency_chart(report((32, 31.0, 19.9))) is None

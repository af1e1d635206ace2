"""Plots of one quantity over a model's releases as coordinates, which a template draws as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from service.dashboard.charts import HEIGHT, WIDTH, Point, Series, Tick, thin_out

MOST_LINES = 4  # of one plot: as many looks as the style sheet has
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 16, 30
_LABEL_WIDTH = 84.0  # of a release under the axis
_STEPS = 4  # of the axis of values, about


@dataclass(frozen=True)
class Figure:
    """A figure of one release: the number, and as people read it."""

    value: float
    text: str


@dataclass(frozen=True)
class Line:
    """One thing's figures, one for each release, oldest first; None where a release has none."""

    name: str
    figures: tuple[Figure | None, ...]


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A quantity of all releases: one line for each thing that has it."""

    id: str
    title: str
    unit: str
    lines: tuple[Line, ...]
    limit: float | None = None  # the most that is allowed

    @property
    def drawn(self) -> tuple[Line, ...]:
        return self.lines[:MOST_LINES]


@dataclass(frozen=True, kw_only=True)
class TrendChart:
    """A plot: releases to the right, evenly spaced, and a quantity upwards."""

    series: tuple[Series, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    limit: float | None  # y of the line that marks the allowed value
    marked: float | None  # x of the promoted release
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def draw_trend(trend: Trend, names: Sequence[str], marked: int | None) -> TrendChart:
    """Draw the trend over releases with these names, oldest first; `marked` is the promoted one's number."""
    figures = [figure.value for line in trend.drawn for figure in line.figures if figure]
    ticks = _ticks([*figures, *([trend.limit] if trend.limit is not None else [])])
    low, high = ticks[0], ticks[-1]
    inner = WIDTH - _LEFT - _RIGHT

    def x(number: int) -> float:
        return round(_LEFT + inner * (number + 0.5) / len(names), 1)

    def y(value: float) -> float:
        return round(HEIGHT - _BOTTOM - (value - low) / (high - low) * (HEIGHT - _TOP - _BOTTOM), 1)

    return TrendChart(
        series=tuple(
            Series(
                name=line.name,
                joined=True,
                points=tuple(
                    Point(x=x(number), y=y(figure.value), label=f"{line.name}, {name}: {figure.text}")
                    for number, (name, figure) in enumerate(zip(names, line.figures, strict=True))
                    if figure
                ),
            )
            for line in trend.drawn
        ),
        x_ticks=thin_out([Tick(at=x(at), label=name) for at, name in enumerate(names)], _LABEL_WIDTH),
        y_ticks=tuple(Tick(at=y(value), label=f"{value:.6g}") for value in ticks),
        limit=None if trend.limit is None else y(trend.limit),
        marked=None if marked is None else x(marked),
    )


def _ticks(values: Sequence[float]) -> list[float]:
    """Return round values around all values, from zero where that wastes less than half of the plot."""
    low, high = min(values), max(values)
    if 0 <= low <= high / 2 or low == high >= 0:
        low = 0.0
    if low == high:
        low, high = (low, low + 1.0) if low >= 0 else (low - 1.0, low)
    step = 10.0 ** math.floor(math.log10((high - low) / _STEPS))
    step *= next(times for times in (1, 2, 5, 10) if (high - low) / (step * times) <= _STEPS)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]

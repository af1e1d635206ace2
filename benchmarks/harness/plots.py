"""Plots of benchmarks: bars with error lines, stacked columns, and lines over a size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from benchmarks.harness.statistics import Spread

Bars = Mapping[str, Sequence[Spread]]  # series -> a figure for each group


@dataclass(frozen=True, kw_only=True)
class Titles:
    """Title of a plot and labels of its axes."""

    title: str
    x: str = ""
    y: str = ""


def draw_bars(
    axes: Axes, groups: Sequence[str], series: Bars, titles: Titles, *, aim: float | None = None
) -> None:
    """Draw a bar per series in each group, with a line from the lowest value to the highest."""
    width = 0.8 / len(series)
    for number, (label, spreads) in enumerate(series.items()):
        places = [group + (number + 0.5) * width - 0.4 for group in range(len(groups))]
        medians = [each.median for each in spreads]
        errors = [[e.median - e.low for e in spreads], [e.high - e.median for e in spreads]]
        axes.bar(places, medians, width * 0.92, label=label, yerr=errors, capsize=2)
    axes.set_xticks(range(len(groups)), groups)
    _finish(axes, titles, aim=aim)


def draw_stacks(axes: Axes, columns: Mapping[str, Mapping[str, float]], titles: Titles) -> None:
    """Draw a column of stacked parts for each name; parts appear in the order of their first mention."""
    parts = dict.fromkeys(part for stack in columns.values() for part in stack)
    base = [0.0] * len(columns)
    for part in parts:
        heights = [stack.get(part, 0.0) for stack in columns.values()]
        axes.bar(list(columns), heights, 0.6, bottom=base, label=part)
        base = [below + height for below, height in zip(base, heights, strict=True)]
    _finish(axes, titles)


def draw_lines(
    axes: Axes, xs: Sequence[float], series: Mapping[str, Sequence[float]], titles: Titles
) -> None:
    """Draw a line per series."""
    for label, ys in series.items():
        axes.plot(xs, ys, marker="o", markersize=4, label=label)
    _finish(axes, titles)


def _finish(axes: Axes, titles: Titles, *, aim: float | None = None) -> None:
    if aim is not None:
        axes.axhline(aim, color="black", linewidth=0.8, linestyle="--", label=f"aim: {aim:g}")
    axes.set_title(titles.title, fontsize=10)
    axes.set_xlabel(titles.x)
    axes.set_ylabel(titles.y)
    axes.grid(axis="y", linewidth=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize=7)

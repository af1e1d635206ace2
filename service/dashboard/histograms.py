"""Histograms of two sides, and intervals of ratios, as coordinates, which a template draws as SVG."""

from dataclasses import dataclass

from exporter.reports.comparison import Histogram, LatencyRatio
from service.dashboard.charts import HEIGHT, WIDTH, Tick

_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 26
_TICKS = 5
_RATIO_HEIGHT = 34


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bin of one side."""

    side: str  # "old" or "new"
    x: float
    y: float
    width: float
    height: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Bars:
    """A histogram: bins to the right, each as wide as the others, and numbers of values upwards."""

    sides: tuple[str, ...]
    bars: tuple[Bar, ...]
    x_ticks: tuple[Tick, ...]
    most: Tick  # the largest number
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def histogram_bars(histogram: Histogram | None) -> Bars | None:
    """Draw a histogram; a side without any values is left out. None if there is nothing to draw."""
    if histogram is None:
        return None
    counted = {"old": histogram.old, "new": histogram.new}
    counts = {side: numbers for side, numbers in counted.items() if any(numbers)}
    most = max((max(numbers) for numbers in counts.values()), default=0)
    bins = len(histogram.edges) - 1
    if not most or bins < 1:
        return None
    step = (WIDTH - _LEFT - _RIGHT) / bins
    width = step * 0.9 / len(counts)
    bars = []
    for place, (side, numbers) in enumerate(counts.items()):
        for at, number in enumerate(numbers):
            height = number / most * (HEIGHT - _TOP - _BOTTOM)
            label = f"{side}: {number:,} from {histogram.edges[at]:.3g} to {histogram.edges[at + 1]:.3g}"
            bars.append(
                Bar(
                    side=side,
                    x=round(_LEFT + at * step + place * width, 1),
                    y=round(HEIGHT - _BOTTOM - height, 1),
                    width=round(width, 1),
                    height=round(height, 1),
                    label=label,
                )
            )
    return Bars(
        sides=tuple(counts),
        bars=tuple(bar for bar in bars if bar.height > 0),
        x_ticks=tuple(
            Tick(at=round(_LEFT + at * step, 1), label=f"{histogram.edges[at]:.3g}")
            for at in sorted({round(number * bins / _TICKS) for number in range(_TICKS + 1)})
        ),
        most=Tick(at=_TOP, label=f"{most:,}"),
    )


@dataclass(frozen=True, kw_only=True)
class RatioBar:
    """The interval of a ratio of latencies, on a line on which 1 is marked."""

    low: float
    high: float
    ratio: float
    one: float
    x_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = _RATIO_HEIGHT


def ratio_bar(measured: LatencyRatio) -> RatioBar:
    """Draw the interval of a ratio."""
    ends = (min(measured.low, 0.75), max(measured.high, 1.25))

    def x(value: float) -> float:
        return round(_LEFT + (value - ends[0]) / (ends[1] - ends[0]) * (WIDTH - _LEFT - _RIGHT), 1)

    return RatioBar(
        low=x(measured.low),
        high=x(measured.high),
        ratio=x(measured.ratio),
        one=x(1.0),
        x_ticks=tuple(Tick(at=x(value), label=f"× {value:.2f}") for value in (ends[0], 1.0, ends[1])),
    )

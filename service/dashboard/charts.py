"""Plots over batch size as coordinates, which a template draws as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from exporter.manifest import CaseKind, CaseReport, VerificationReport

WIDTH, HEIGHT = 420, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 14, 36


@dataclass(frozen=True, kw_only=True)
class Point:
    """A measured value with its coordinates and label."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A labelled position on an axis."""

    at: float
    label: str


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points of one kind, with or without a line through them."""

    name: str
    points: tuple[Point, ...]
    joined: bool

    @property
    def path(self) -> str:
        """The line through the points, for `polyline`."""
        return " ".join(f"{point.x},{point.y}" for point in self.points)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A plot with logarithmic axes: batch size to the right, a quantity upwards."""

    series: tuple[Series, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    limit: float | None = None  # y of the line that marks the allowed value
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A value measured at a batch size."""

    batch: int
    value: float
    label: str


def error_chart(report: VerificationReport) -> Chart | None:
    """Plot the differences between package and eager as fractions of the output's scale, with the limit."""
    found = [
        Measurement(batch=batch, value=_relative(case), label=case.name)
        for case in report.cases
        if case.kind is CaseKind.AGREES
        and case.largest_difference is not None
        and (batch := case.sizes.get("batch"))
    ]
    return _chart({"differences": found}, joined=False, limit=report.tolerance) if found else None


def latency_chart(report: VerificationReport) -> Chart | None:
    """Plot milliseconds per call of eager and of the package; None if fewer than two sizes were timed."""
    if len(report.latency) < 2:
        return None
    timed = sorted(report.latency, key=lambda each: each.batch)
    lines = {
        "eager": [Measurement(batch=each.batch, value=each.eager_ms, label="eager") for each in timed],
        "package": [Measurement(batch=each.batch, value=each.compiled_ms, label="package") for each in timed],
    }
    return _chart(lines, joined=True, limit=None)


def _relative(case: CaseReport) -> float:
    assert case.largest_difference is not None
    return case.largest_difference / case.scale if case.scale else case.largest_difference


def _chart(lines: dict[str, list[Measurement]], *, joined: bool, limit: float | None) -> Chart:
    points = [point for line in lines.values() for point in line]
    batches = sorted({point.batch for point in points})
    values = [point.value for point in points if point.value > 0] + ([limit] if limit else [])
    low, high = _decades(values)
    has_zero = len(values) < len(points) + (limit is not None)
    low -= has_zero  # a logarithmic axis has no zero: a difference of zero is drawn a decade below
    x_low, x_high = math.log2(batches[0]) - 0.3, math.log2(batches[-1]) + 0.3

    def x(batch: float) -> float:
        share = (math.log2(batch) - x_low) / (x_high - x_low)
        return round(_LEFT + share * (WIDTH - _LEFT - _RIGHT), 1)

    def y(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / (high - low)
        return round(HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM), 1)

    return Chart(
        series=tuple(
            Series(
                name=name,
                joined=joined,
                points=tuple(
                    Point(
                        x=x(each.batch),
                        y=y(each.value),
                        label=f"{each.label}, batch {each.batch}: {each.value:.2g}",
                    )
                    for each in line
                ),
            )
            for name, line in lines.items()
        ),
        x_ticks=thin_out([Tick(at=x(batch), label=str(batch)) for batch in batches]),
        y_ticks=tuple(
            Tick(at=y(10.0**power), label="equal" if has_zero and power == low else _power(power))
            for power in range(low, high + 1)
        ),
        limit=y(limit) if limit else None,
    )


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """Return the powers of ten around the values, at least one decade apart."""
    if not values:
        return -1, 0
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return (low, high) if high > low else (low - 1, high)


def _power(power: int) -> str:
    return f"{10.0**power:.10g}" if -2 <= power <= 4 else f"1e{power}"


def thin_out(ticks: list[Tick], gap: float = 20) -> tuple[Tick, ...]:
    """Drop ticks that are too close for their labels; the last one is always kept."""
    kept: list[Tick] = []
    for tick in reversed(ticks):
        if not kept or kept[-1].at - tick.at >= gap:
            kept.append(tick)
    return tuple(reversed(kept))

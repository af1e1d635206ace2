"""Statistics of repeated measurements: median, lowest, highest, ratios, percentiles, slope."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Self

from pydantic import BaseModel


class Spread(BaseModel):
    """Values as measured, with their median, lowest and highest."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Summarise one or more values."""
        measured = tuple(values)
        return cls(median=statistics.median(measured), low=min(measured), high=max(measured), values=measured)

    def text(self, digits: int = 3) -> str:
        """Return the median, with the lowest and the highest in brackets."""
        median, low, high = (format_number(each, digits) for each in (self.median, self.low, self.high))
        return f"{median} ({low} to {high})"


def ratios(over: Sequence[float], under: Sequence[float]) -> Spread:
    """Divide round by round, because the two values of a round were measured under the same load."""
    return Spread.of(each / other for each, other in zip(over, under, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Return the slope of the best-fitting line: the growth of `y` per unit of `x`."""
    return statistics.linear_regression(xs, ys).slope


def format_number(value: float, digits: int = 3) -> str:
    """Return the value with this many significant digits, never in scientific notation."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"

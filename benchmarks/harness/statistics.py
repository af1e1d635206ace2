"""A figure measured several times: its median, and how far apart the measurements were."""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Self

from pydantic import BaseModel


class Spread(BaseModel):
    """The values as they were measured, and what is said of them."""

    median: float
    low: float
    high: float
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Of at least one value."""
        measured = tuple(values)
        return cls(median=statistics.median(measured), low=min(measured), high=max(measured), values=measured)

    def text(self, digits: int = 3) -> str:
        """The median, and in brackets the lowest and the highest."""
        median, low, high = (rounded(each, digits) for each in (self.median, self.low, self.high))
        return f"{median} ({low} to {high})"


def ratios(over: Sequence[float], under: Sequence[float]) -> Spread:
    """Round by round: both were measured beside each other, under the same load."""
    return Spread.of(each / other for each, other in zip(over, under, strict=True))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Of the line that fits best: what `y` grows by, per unit of `x`."""
    return statistics.linear_regression(xs, ys).slope


def rounded(value: float, digits: int = 3) -> str:
    """The value to so many significant digits, never in powers of ten."""
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"

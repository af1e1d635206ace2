"""A measure of quality with the noise of its rows, and the verdict on its change from a baseline.

N rows (or groups). The noise of a difference comes from each row's influence on both values, so that what
both releases find hard or easy cancels out. Rows of one group are not independent: their influences are
added up before they are squared.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exporter.reports.release_report import Verdict

Array = NDArray[np.float64]
Codes = NDArray[np.int64]

CONFIDENCE_Z = 2.326  # one-sided 99 % of the normal distribution
_FEWEST_UNITS = 30  # rows or groups, below which the normal distribution says nothing


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A measure on rows: its value, and how far each row moves it (`value - truth` is about their mean)."""

    value: float
    influence: Array

    @property
    def rows(self) -> int:
        return len(self.influence)


def noise_of(influence_N: Array, groups_N: Codes | None) -> float:
    """Return the standard error of an estimate, or of a difference of two, from its rows' influences."""
    if groups_N is None:
        return float(np.sqrt((influence_N**2).sum()) / len(influence_N))
    sums = np.bincount(groups_N, weights=influence_N)
    return float(np.sqrt((sums**2).sum()) / len(influence_N))


def count_units(rows: int, groups_N: Codes | None) -> int:
    """Return the number of independent units: groups, or rows where there are none."""
    return rows if groups_N is None else len(np.unique(groups_N))


def judge_rise(rise: float, noise: float, allowed: float, units: int) -> Verdict:
    """Judge how much worse a release is, given as a positive number.

    It fails if it is worse by more than is allowed, with confidence. It passes only if it is not worse by
    twice that, with the same confidence; between the two nobody can tell.
    """
    margin = CONFIDENCE_Z * noise
    if units < _FEWEST_UNITS:
        return Verdict.TOO_FEW
    if rise - margin > allowed:
        return Verdict.FAILED
    return Verdict.PASSED if rise + margin <= 2 * allowed else Verdict.TOO_FEW


def judge_chance(value: float, noise: float, chance: float, margin: float, units: int) -> Verdict:
    """Judge whether a value is above what a model would have that knows nothing.

    It fails if it is not, although a distance of `margin` would have been found out.
    """
    if units < _FEWEST_UNITS:
        return Verdict.TOO_FEW
    if value - CONFIDENCE_Z * noise > chance:
        return Verdict.PASSED
    return Verdict.FAILED if value + CONFIDENCE_Z * noise <= chance + margin else Verdict.TOO_FEW

"""Statistics of the held-out rows of a release, small enough to be kept for the next release."""

from collections.abc import Mapping
from enum import StrEnum

from exporter.frozen import Frozen

MOST_FEATURES = 1000


class ValueKind(StrEnum):
    """Meaning of a feature's values, as far as their distribution may change."""

    IDS = "ids"
    NUMBERS = "numbers"
    TIMES = "times"  # Unix seconds or milliseconds, which are others every day


class FeatureStatistics(Frozen):
    """Shares of one feature: nulls, ids that its table has no row for, values and lengths by bins."""

    kind: ValueKind
    rows: int  # that the shares of values and lengths come from
    null_share: float  # of the rows
    unknown_share: float  # of the ids
    # Ids: the most frequent ones. Numbers: the upper ends of the bins but the last, ascending.
    bins: tuple[float, ...]
    shares: tuple[float, ...]  # one more than bins: the last is of all other values
    # Ids: population stability index of the second half of the rows beside the first, above that of chance.
    turnover: float = 0.0
    length_shares: tuple[float, ...]  # of rows with 0, 1, 2, 3 to 4, 5 to 8, ... values; 0: it has no lengths


class InputStatistics(Frozen):
    """Statistics of the features that a release's first tower reads."""

    rows: int
    features: Mapping[str, FeatureStatistics]
    left_out: int = 0  # features beyond MOST_FEATURES

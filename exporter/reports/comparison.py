"""The comparison of two published artifacts, as people read it before they promote one."""

from exporter.frozen import Frozen

DIFF_NAME = "diff.json"  # beside the manifest of the newer artifact
FEWEST_ROUNDS = 10  # of calls in turn, below which their times decide nothing


class LatencyRatio(Frozen):
    """Times of two towers that were called in turn in one process, on the same rows."""

    batch: int  # rows per call
    rounds: int  # calls of each
    old_ms: float  # median
    new_ms: float
    ratio: float  # of the medians, new to old
    low: float  # ends of the interval in which the ratio lies, with `confidence`
    high: float
    confidence: float

    def is_above(self, bound: float) -> bool | None:
        """Return whether the ratio is above `bound`; None if calls are too few, or too unsteady, to tell."""
        if self.rounds < FEWEST_ROUNDS:
            return None
        if self.low > bound:
            return True
        return False if self.high <= bound else None

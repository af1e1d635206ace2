"""Figures held against bounds, each printed as soon as it is measured."""

import sys


class Bounds:
    """Prints `what: measured (bound …)`, and remembers whether a bound was missed."""

    def __init__(self) -> None:
        self.were_missed = False

    def check(self, what: str, measured: float, bound: float) -> None:
        """Print a figure; it misses its bound if it is larger."""
        sys.stdout.write(f"{what}: {_format(measured)} (bound {_format(bound)})\n")
        sys.stdout.flush()
        self.were_missed |= measured > bound

    @property
    def exit_status(self) -> int:
        """Return 1 if a bound was missed, else 0."""
        return int(self.were_missed)


def _format(number: float) -> str:
    """Return whole numbers in full, and others in three digits."""
    return f"{number:,.0f}" if float(number).is_integer() or abs(number) >= 1000 else f"{number:.3g}"

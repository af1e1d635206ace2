"""The table of a run: faults, stages, and what they broke."""

from collections.abc import Sequence
from pathlib import Path

from tests.faults.cells import Result

TABLE = Path(".slipway/faults.md")  # of a run of everything; less is told in a line
_WHOLE = 40  # cells


def summary(results: Sequence[Result]) -> str:
    """One line: what there was and what broke."""
    cells = {(result.fault, result.point) for result in results}
    broken = sum(len(result.broken) for result in results)
    return f"{len(results)} faults in {len(cells)} cells, {len(results)} jobs, {broken} invariants broken"


def is_whole(results: Sequence[Result]) -> bool:
    """Whether it was a run that is worth a table."""
    return len({(result.fault, result.point) for result in results}) >= _WHOLE


def table(results: Sequence[Result]) -> str:
    """Markdown; one row for each fault that was injected."""
    lines = [
        summary(results),
        "",
        "| fault | at | the job | attempts | seconds | broken |",
        "|" + " --- |" * 6,
    ]
    for result in results:
        broken = "; ".join(result.broken).replace("|", "/") or "0"
        ended = f"{result.state} | {result.attempts} | {result.seconds:g}"
        lines.append(f"| {result.fault} | {result.point} | {ended} | {broken} |")
    return "\n".join(lines) + "\n"

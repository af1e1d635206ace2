"""The table of lies that were told: what caught each of them, with which code, in how many seconds."""

from collections.abc import Sequence
from pathlib import Path

from tests.planted.lies.telling import Told

TABLE = Path(".slipway/planted.md")
RESULTS: list[Told] = []  # of this run


def summary(results: Sequence[Told]) -> str:
    """Return one line with the number of lies, and of those that were caught."""
    caught = sum(told.is_caught for told in results)
    return f"{caught} of {len(results)} lies were caught"


def table(results: Sequence[Told]) -> str:
    """Return a Markdown table with one row per lie."""
    lines = [
        f"{summary(results)}.",
        "",
        "| lie | what it does | caught at | code | smallest case | seconds |",
        "|" + " --- |" * 6,
        *(_row(told) for told in results),
    ]
    return "\n".join(lines) + "\n"


def _row(told: Told) -> str:
    where = told.failure.where if told.failure else "not caught"
    code = told.failure.code if told.failure else ""
    smallest = ", ".join(told.smallest)
    return f"| {told.lie.name} | {told.lie.does} | {where} | {code} | {smallest} | {told.seconds:.0f} |"

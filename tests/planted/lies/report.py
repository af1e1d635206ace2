"""The table of lies that were told: what caught each of them, with which code, in how many seconds."""

from collections.abc import Sequence
from pathlib import Path

from tests.planted.lies.telling import Told

TABLE = Path(".slipway/planted.md")
COLUMNS = ("lie", "what it does", "caught at", "code", "smallest case", "processor seconds")
PROPERTY = "lie"  # of a test's report, in which processes of pytest-xdist send it

Row = tuple[bool, tuple[str, ...]]  # whether the lie was caught, and the cells


def row(told: Told) -> Row:
    """Return one lie's row of the table."""
    where = told.failure.where if told.failure else told.note
    code = told.failure.code if told.failure else ""
    cells = (
        told.lie.name,
        told.lie.does,
        where.replace("|", "\\|") if told.is_caught else f"NOT CAUGHT ({where})",
        code,
        ", ".join(told.smallest),
        f"{told.processor_s:.0f}",
    )
    return told.is_caught, cells


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table with one row per lie, and how many of them were caught above it."""
    caught = sum(is_caught for is_caught, _ in rows)
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(cells for _, cells in rows)]
    return "\n".join(
        [f"{caught} of {len(rows)} lies were caught.", "", *(f"| {' | '.join(line)} |" for line in lines), ""]
    )

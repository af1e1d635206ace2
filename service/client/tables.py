"""Tables for people: a narrow terminal folds long cells, and a pipe gets every row in one line."""

import sys
from collections.abc import Mapping

from rich.console import Console, RenderableType
from rich.table import Table

from exporter.redaction import escape_deceptive

_UNBOUNDED = 10_000  # columns of a line in a file


class VisibleTable(Table):
    """A table whose cells may hold text of strangers: no character of a cell acts on the terminal."""

    def add_row(self, *cells: RenderableType | None) -> None:  # type: ignore[override] # no style per row
        """Append the cells, with control characters written out by number."""
        super().add_row(*(escape_deceptive(cell) if isinstance(cell, str) else cell for cell in cells))


def table_of(*columns: str, title: str | None = None, whole: str | None = None) -> Table:
    """Return an empty table that never cuts a cell short; the column `whole` is not even folded."""
    table = VisibleTable(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == whole)
    return table


def console() -> Console:
    """Return a console on standard output that does not interpret markup in texts."""
    width = None if sys.stdout.isatty() else _UNBOUNDED
    return Console(width=width, markup=False, emoji=False, highlight=False)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """List dims of one size together, named by the first: "batch 3, seq_clicks 218, tags and 5 others 9"."""
    names: dict[int, list[str]] = {}
    for name, size in sizes.items():
        names.setdefault(size, []).append(name)
    others = {1: "", 2: " and another"}
    return ", ".join(
        f"{first[0]}{others.get(len(first), f' and {len(first) - 1} others')} {size}"
        for size, first in names.items()
    )

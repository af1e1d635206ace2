"""Tables for people: what a terminal is too narrow for is folded, and a pipe gets every row in one line."""

import sys
from collections.abc import Mapping

from rich.console import Console, RenderableType
from rich.table import Table

from exporter.redaction import visible

_UNBOUNDED = 10_000  # columns of a line in a file


class VisibleTable(Table):
    """Shows what a stranger may have written: no character of a cell acts on the terminal."""

    def add_row(self, *cells: RenderableType | None) -> None:  # type: ignore[override] # no style per row
        """Append the cells, and what could act on a terminal as its number."""
        super().add_row(*(visible(cell) if isinstance(cell, str) else cell for cell in cells))


def table_of(*columns: str, title: str | None = None, whole: str | None = None) -> Table:
    """An empty table that never cuts a cell short; the column `whole` is not even folded."""
    table = VisibleTable(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column == whole)
    return table


def console() -> Console:
    """Standard output; a cell's text is shown as it is."""
    width = None if sys.stdout.isatty() else _UNBOUNDED
    return Console(width=width, markup=False, emoji=False, highlight=False)


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Dims of one size together, named by the first: "batch 3, seq_clicks 218, tags and 5 others 9"."""
    names: dict[int, list[str]] = {}
    for name, size in sizes.items():
        names.setdefault(size, []).append(name)
    others = {1: "", 2: " and another"}
    return ", ".join(
        f"{first[0]}{others.get(len(first), f' and {len(first) - 1} others')} {size}"
        for size, first in names.items()
    )

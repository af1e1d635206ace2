"""A run of the board as one self-contained HTML page."""

from collections.abc import Iterable
from html import escape

from benchmarks.board.record import SIZE_CLASSES, STAGES, Changes, Record, Result, Row

_COLOURS = {Result.PASS: "pass", Result.FAIL: "fail", Result.LEFT_OUT: "out", Result.NOT_REACHED: "none"}
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 2rem; color-scheme: light dark }
table { border-collapse: collapse } td, th { padding: .2rem .5rem; border: 1px solid #8884; text-align: left }
.pass { background: #2a84 } .fail { background: #d335; font-weight: bold } .out { opacity: .6 }
"""


def page_of(record: Record, changed: Changes) -> str:
    """Render a run, and its changes against an earlier one, as HTML."""
    named = ("family", "model", "tower", "mode", "precision")
    heads = (*named, *STAGES, *SIZE_CLASSES, "of allowed", "s", "why")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Slipway board</title>'
        f"<style>{_STYLE}</style><h1>Board</h1>"
        f"<p>{escape(record.at)}, torch {escape(record.torch)}: {summary(record)}</p>"
        + "".join(f"<p>{escape(line)}</p>" for line in describe_changes(changed))
        + f"<table><thead><tr>{_cells('th', heads)}</tr></thead><tbody>"
        + "".join(f"<tr>{_row(row)}</tr>" for row in record.rows)
        + "</tbody></table></html>\n"
    )


def summary(record: Record) -> str:
    """Count the rows that passed, failed and were left out."""
    count = {result: sum(row.result is result for row in record.rows) for result in Result}
    return f"{count[Result.PASS]} pass, {count[Result.FAIL]} fail, {count[Result.LEFT_OUT]} left out"


def describe_changes(changed: Changes) -> list[str]:
    """Return a line for each kind of change that occurred."""
    return [f"{way}: {', '.join(rows)}" for way, rows in changed.model_dump().items() if rows]


def _row(row: Row) -> str:
    results = [row.stages.get(stage) for stage in STAGES] + [row.sizes.get(size) for size in SIZE_CLASSES]
    difference = "" if row.difference is None else f"{row.difference:.2%}"
    return (
        _cells("td", (row.family, row.model, row.tower, row.mode, row.precision))
        + "".join(_result(result) for result in results)
        + _cells("td", (difference, "" if row.seconds is None else f"{row.seconds:.0f}"))
        + f'<td class="{_COLOURS[row.result]}">{escape(row.why or row.result)}</td>'
    )


def _result(result: Result | None) -> str:
    return f'<td class="{_COLOURS[result]}">{result}</td>' if result else "<td></td>"


def _cells(kind: str, values: Iterable[str]) -> str:
    return "".join(f"<{kind}>{escape(value)}</{kind}>" for value in values)

"""The table of a run: faults, stages, and what they broke."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.cells import Result

TABLE = Path(".slipway/faults.md")  # of a run of everything; less is told in a line
ROWS = Path(".slipway/faults-jobs.md")  # the same run, job by job
LOAD = Path(".slipway/load.md")
_DOCUMENT = Path("docs/faults.md")
_HEADING = "## The last whole run\n"
_WHOLE = 40  # cells


def summary(results: Sequence[Result]) -> str:
    """Return one line with the number of faults and what they broke."""
    cells = {(result.fault, result.point) for result in results}
    broken = sum(len(result.broken) for result in results)
    return f"{len(results)} faults in {len(cells)} cells, {len(results)} jobs, {broken} invariants broken"


def is_whole(results: Sequence[Result]) -> bool:
    """True if the run was complete enough for a table."""
    return len({(result.fault, result.point) for result in results}) >= _WHOLE


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table with one row per fault and kind of attempts."""
    lines = [
        f"{summary(results)}.",
        "",
        "| fault | attempts | at | jobs | ended | attempts a job | seconds a job | broken |",
        "|" + " --- |" * 8,
    ]
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.fault, result.kind), []).append(result)
    return "\n".join([*lines, *(_row(fault, kind, of) for (fault, kind), of in groups.items())]) + "\n"


def _row(fault: str, kind: str, results: Sequence[Result]) -> str:
    """Return the row of one fault, over all stages."""
    points = "; ".join(dict.fromkeys(result.point for result in results))
    ended = ", ".join(dict.fromkeys(result.state for result in results))
    attempts = _range([result.attempts for result in results])
    seconds = _range([round(result.seconds) for result in results])
    broken = sum(len(result.broken) for result in results)
    return f"| {fault} | {kind} | {points} | {len(results)} | {ended} | {attempts} | {seconds} | {broken} |"


def _range(numbers: Sequence[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least}" if least == most else f"{least} to {most}"


def rows(results: Sequence[Result]) -> str:
    """Return a Markdown table with one row per job."""
    lines = ["| fault | attempts | at | the job | attempts | seconds | broken |", "|" + " --- |" * 7]
    for result in results:
        broken = "; ".join(result.broken).replace("|", "/") or "0"
        ended = f"{result.state} | {result.attempts} | {result.seconds:g}"
        lines.append(f"| {result.fault} | {result.kind} | {result.point} | {ended} | {broken} |")
    return "\n".join(lines) + "\n"


def write(results: Sequence[Result]) -> None:
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(table(results))
    ROWS.write_text(rows(results))


def with_last_run(document: str, sections: Sequence[str]) -> str:
    """Return the document with these rows as its last chapter, in place of an earlier one."""
    return "\n".join([document.partition(_HEADING)[0].rstrip() + "\n", _HEADING, *sections])


def _sections() -> Iterator[str]:
    yield TABLE.read_text()
    if LOAD.exists():
        yield LOAD.read_text()


if __name__ == "__main__":
    _DOCUMENT.write_text(with_last_run(_DOCUMENT.read_text(), list(_sections())))

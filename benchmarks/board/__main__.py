"""Export every model of a zoo in every mode and precision, and compare with the last run: `make board`."""

import argparse
import json
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from rich.table import Table

from benchmarks.board.page import describe_changes, page_of, summary
from benchmarks.board.record import (
    SIZE_CLASSES,
    STAGES,
    Record,
    Result,
    Row,
    changes,
    merge_records,
    merge_unfinished,
    read_record,
)
from benchmarks.board.zoo import PRECISIONS, Wanted, read_zoo
from cli.settings import leave_the_gpu_to_forks
from exporter.spec import Mode
from processes.interrupts import interrupt_on_end_signals
from service.client.tables import console, table_of
from telemetry.choices import LogFormat, LogLevel
from telemetry.logging import configure_logging


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of the board; return 1 if a row fails."""
    interrupt_on_end_signals()
    configure_logging(LogFormat.CONSOLE, LogLevel.WARNING)
    leave_the_gpu_to_forks()
    return run(options().parse_args(arguments))


def options() -> argparse.ArgumentParser:
    """Return the parser of the board's options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.board",
        description="Export every model of a zoo in every mode and precision. Exit code: 1 if a row fails.",
        epilog="example: python -m benchmarks.board --zoo tests/board/zoo.json --record .slipway/board.json",
    )
    parser.add_argument("--zoo", metavar="FILE", type=Path, required=True, help="the models, as JSON")
    parser.add_argument(
        "--record", metavar="FILE", type=Path, help="the recorded run, which is updated with every row"
    )
    parser.add_argument(
        "--against", metavar="FILE", type=Path, help="a run to compare with; default: the recorded one"
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write the board as an HTML page")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="only this model; may be repeated"
    )
    parser.add_argument(
        "--mode", action="append", default=[], choices=list(Mode), help="only this mode; may be repeated"
    )
    parser.add_argument(
        "--precision", action="append", default=[], choices=PRECISIONS, help="only this one; may be repeated"
    )
    parser.add_argument(
        "--reduced",
        action="store_true",
        help="one tower of one model of each family, in fp32, in alternating modes",
    )
    parser.add_argument("--json", action="store_true", help="print the board as JSON")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run the board, print it, and record it; return 1 if a row fails."""
    from benchmarks.board.run import run_board  # torch loads only after the options were accepted

    earlier = read_record(arguments.record) if arguments.record else None
    compared = read_record(arguments.against) if arguments.against else earlier

    rows: list[Row] = []

    def show(row: Row) -> None:
        rows.append(row)
        _write(
            arguments.record, merge_unfinished(earlier, rows, torch=version("torch"))
        )  # a run takes long and may be interrupted
        if not arguments.json:
            console().print(" ".join((*row.key, row.result, row.why)), soft_wrap=True, markup=False)

    zoo: Path = arguments.zoo
    record = run_board(
        read_zoo(zoo),
        zoo.absolute().parent,
        reduced=arguments.reduced,
        wanted=Wanted(arguments.model, arguments.mode, arguments.precision),
        on_row=show,
    )
    changed = changes(compared, record)
    whole = merge_records(earlier, record)
    _write(arguments.record, whole)
    if arguments.html:
        arguments.html.write_text(page_of(whole, changed))
    if arguments.json:
        print(json.dumps({"changes": changed.model_dump(), **record.model_dump(mode="json")}, indent=2))
    else:
        console().print(_table(record.rows))
        for line in (summary(record), *describe_changes(changed)):
            console().print(line, markup=False)
    return 1 if record.failed else 0


def _write(file: Path | None, record: Record) -> None:
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_name(f".{file.name}.unfinished")
        unfinished.write_text(record.model_dump_json(indent=1) + "\n")
        unfinished.replace(file)  # a run that is killed while it writes leaves the last record complete


def _table(rows: tuple[Row, ...]) -> Table:
    marks = {Result.PASS: "✓", Result.FAIL: "✗", Result.LEFT_OUT: "·", Result.NOT_REACHED: "-"}
    table = table_of("model", "tower", "mode", "precision", *STAGES, *SIZE_CLASSES, "s", title="board")
    for row in rows:
        if row.result is not Result.LEFT_OUT:
            cells = [row.stages.get(stage) for stage in STAGES] + [
                row.sizes.get(size) for size in SIZE_CLASSES
            ]
            shown = [marks[cell] if cell else "" for cell in cells]
            table.add_row(*row.key, *shown, "" if row.seconds is None else f"{row.seconds:.0f}")
    return table


if __name__ == "__main__":
    sys.exit(main())

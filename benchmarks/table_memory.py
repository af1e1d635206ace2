"""Measure the memory of an export against the size of its table, up to tables larger than the memory.

Each size is one cold `slipway export` of an item tower, whose checkpoint is a sparse file with real values
at the table's start and end. Zeros are written as holes as well, so that 40 GB fit on any disk. One size is
measured once more with real values throughout, which takes three times its bytes of disk.
"""

import argparse
import functools
import shutil
import sys

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_lines
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import format_number, slope
from benchmarks.measure.exports import ExportRun, Place, export
from benchmarks.measure.large_table import add_sizes_option, large_table_spec

_SIZES = (0.1e9, 0.4e9, 1e9, 2e9, 4e9, 8e9)  # sizes that the slope is fitted to
_BEYOND = (40e9,)  # larger than the machine's memory: not part of the slope
_REAL = 8e9  # measured once more without holes
_QUICK = (0.1e9, 0.2e9)
_ALLOWED, _ALLOWED_SHARE = 1.5e9, 0.1  # bytes of a rank, and a fraction of the table


class TableRun(BaseModel):
    """One export."""

    table_bytes: int
    real_values: bool
    export: ExportRun
    allowed_share: float  # anonymous memory as a fraction of the allowed

    @classmethod
    def of(cls, table_bytes: int, done: ExportRun, *, real: bool) -> "TableRun":
        share = done.peak.anonymous / (_ALLOWED + _ALLOWED_SHARE * table_bytes)
        return cls(table_bytes=table_bytes, real_values=real, export=done, allowed_share=round(share, 3))


class MemoryFigures(BaseModel):
    """Figures of all sizes; slopes, over sizes that fit, are bytes of memory per byte of table."""

    runs: tuple[TableRun, ...]
    others: tuple[TableRun, ...]  # tables larger than memory, or with real values throughout
    failed: tuple[str, ...]  # failures among `others`
    anonymous_slope: float
    mapped_slope: float


def main() -> int:
    parser = build_parser("table_memory", __doc__)
    add_sizes_option(parser)
    given = parser.parse_args()
    return run_benchmark("table_memory", given, functools.partial(measure, given))


def measure(given: argparse.Namespace, run: Run) -> Report:
    """Measure each size once and fit a line to all of them, because the slope is the result."""
    sizes = given.sizes or (_QUICK if run.quick else _SIZES)
    runs = [_one(run, int(size), real=False) for size in sizes]
    asked = [] if given.sizes else [(_QUICK[0] if run.quick else _REAL, True)]
    asked += [] if given.sizes or run.quick else [(size, False) for size in _BEYOND]
    others, failed = [], []
    for size, real in asked:
        try:
            others.append(_one(run, int(size), real=real))
        except SystemExit as error:  # keep the sizes that have been measured
            failed.append(f"{size / 1e9:g} GB: {error}")
    tables_ = [float(each.table_bytes) for each in runs]
    figures = MemoryFigures(
        runs=tuple(runs),
        others=tuple(others),
        failed=tuple(failed),
        anonymous_slope=slope(tables_, [each.export.peak.anonymous for each in runs]),
        mapped_slope=slope(tables_, [each.export.peak.mapped for each in runs]),
    )
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def _one(run: Run, table_bytes: int, *, real: bool) -> TableRun:
    folder = run.folder / f"{table_bytes}-{real}"
    folder.mkdir()
    spec = large_table_spec(folder, table_bytes, real=real)
    done = export(spec, Place(folder=folder, compiler=folder / "compiler"), watched=True)
    shutil.rmtree(folder)
    run.say(f"{table_bytes / 1e9:g} GB: anonymous {done.peak.anonymous / 1e9:.2f} GB, {done.attempt_s:.0f} s")
    return TableRun.of(table_bytes, done, real=real)


def tables(figures: MemoryFigures) -> tuple[Table, ...]:
    """Return a table of the slopes and one of all sizes."""
    slopes = Table(
        title="Bytes of memory per byte of table, over the sizes that fit into memory",
        columns=("anonymous", "mapped"),
        rows=((f"{figures.anonymous_slope:.4f}", f"{figures.mapped_slope:.3f}"),),
    )
    rows = tuple(
        (
            f"{each.table_bytes / 1e9:g} GB" + (", real values" if each.real_values else ""),
            f"{each.export.peak.anonymous / 1e9:.2f} GB",
            format_number(each.allowed_share, 2),
            f"{each.export.peak.mapped / 1e9:.2f} GB",
            f"{each.export.attempt_s:.0f}",
        )
        for each in (*figures.runs, *figures.others)
    )
    rows += tuple((each.partition(":")[0], "failed", "", "", "") for each in figures.failed)
    columns = ("table", "anonymous", "of 1.5 GB and a tenth of the table", "mapped", "seconds")
    return (slopes, Table(title="Peaks over all processes of the job", columns=columns, rows=rows))


def draw(figures: MemoryFigures, figure: Figure) -> None:
    """Plot peaks over the table's size, with the allowed memory."""
    gigabytes = [each.table_bytes / 1e9 for each in figures.runs]
    lines = {
        "anonymous": [each.export.peak.anonymous / 1e9 for each in figures.runs],
        "mapped": [each.export.peak.mapped / 1e9 for each in figures.runs],
        "allowed: 1.5 GB and a tenth": [(_ALLOWED / 1e9) + _ALLOWED_SHARE * each for each in gigabytes],
    }
    titles = Titles(title="Peak memory of an export", x="table, GB", y="GB")
    draw_lines(figure.subplots(), gigabytes, lines, titles)


if __name__ == "__main__":
    sys.exit(main())

"""Measure sharded tables: seconds and memory at 1, 2 and 4 ranks, and reading a checkpoint against `cat`.

Each export is one cold `slipway export` of an item tower with `tables: sharded`, whose checkpoint is a file
with real values at the table's start and end and a hole between them. The reading benchmark uses real values
throughout: a distributed checkpoint, read in pieces of rows as a rank reads them, in turn with `cat`.
"""

import argparse
import functools
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp
from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_lines
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, ratios
from benchmarks.measure.exports import Place, export
from benchmarks.measure.large_table import add_sizes_option, large_table_spec
from benchmarks.measure.process_memory import memory_of, process_tree
from exporter.checkpoint.keymap import PREFIX
from exporter.checkpoint.read import open_checkpoint
from exporter.options.tables import Tables
from exporter.shards.write import PIECE_BYTES
from exporter.spec import Mode
from exporter.stages import Stage

_SIZES = (4e9, 16e9)
_RANKS = (1, 2, 4)
_QUICK = (0.1e9,)
_READ, _QUICK_READ, _WIDTH = 2 << 30, 64 << 20, 64  # bytes of the checkpoint, and numbers in a row
_PERIOD_S = 0.1


class ShardedRun(BaseModel):
    """One export; memory is that of the rank that used most, with all processes that it started."""

    table_bytes: int
    ranks: int
    attempt_s: float
    tables_s: float
    anonymous: int
    mapped: int


class ShardsFigures(BaseModel):
    """Figures of all exports, and of the rounds of reading."""

    runs: tuple[ShardedRun, ...]
    read_s: tuple[float, ...]
    cat_s: tuple[float, ...]
    reading: Spread  # ratio of reading to cat


class RankWatch:
    """Samples the memory of the ranks below a process while the context lasts; see `ShardedRun`."""

    def __init__(self) -> None:
        """Watch the descendants of this process."""
        self.anonymous = self.mapped = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "RankWatch":
        self._thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        own = Path("/proc/self").resolve().name
        while not self._ended.wait(_PERIOD_S):
            for rank in (pid for pid in process_tree(int(own)) if _is_rank(pid)):
                now = [memory_of(pid) for pid in process_tree(rank)]
                self.anonymous = max(self.anonymous, sum(each.anonymous for each in now))
                self.mapped = max(self.mapped, sum(each.mapped for each in now))


def _is_rank(pid: int) -> bool:
    """Return whether this is a rank, by its name in `ps`: a named fork, or the program of a single rank."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return name.startswith("rank ") or (
        b"worker.attempt.rank" in command and b"processes.guard" not in command
    )


def main() -> int:
    parser = build_parser("shards", __doc__)
    add_sizes_option(parser)
    given = parser.parse_args()
    return run_benchmark("shards", given, functools.partial(measure, given))


def measure(given: argparse.Namespace, run: Run) -> Report:
    """Export each size once at each number of ranks, and read in as many rounds as requested."""
    sizes = given.sizes or (_QUICK if run.quick else _SIZES)
    read_s, cat_s = _reading(run)
    runs = [_one(run, int(size), ranks) for size in sizes for ranks in _RANKS]
    figures = ShardsFigures(
        runs=tuple(runs), read_s=tuple(read_s), cat_s=tuple(cat_s), reading=ratios(read_s, cat_s)
    )
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def _one(run: Run, table_bytes: int, ranks: int) -> ShardedRun:
    folder = run.folder / f"{table_bytes}-{ranks}"
    folder.mkdir()
    spec = large_table_spec(folder, table_bytes, real=False).model_copy(
        update={"mode": Mode.TWO_STAGE, "tables": Tables(layout="sharded"), "ranks": ranks}
    )
    with RankWatch() as watch:
        done = export(spec, Place(folder=folder, compiler=folder / "compiler"))
    shutil.rmtree(folder)
    anonymous = f"{watch.anonymous / 1e9:.2f} GB anonymous"
    run.say(f"{table_bytes / 1e9:g} GB, {ranks} ranks: {done.attempt_s:.0f} s, {anonymous}")
    return ShardedRun(
        table_bytes=table_bytes,
        ranks=ranks,
        attempt_s=done.attempt_s,
        tables_s=max(tower.get(Stage.TABLES, 0.0) for tower in done.stages_s.values()),
        anonymous=watch.anonymous,
        mapped=watch.mapped,
    )


def _reading(run: Run) -> tuple[list[float], list[float]]:
    """Return seconds of reading all rows of a table in pieces and of `cat` on the same files, in turn."""
    rows = (_QUICK_READ if run.quick else _READ) // (_WIDTH * 4)
    folder, name = run.folder / "read" / "model", f"{PREFIX}table"
    dcp.save({name: torch.rand(rows, _WIDTH)}, checkpoint_id=folder, no_dist=True)
    step, read_s, cat_s = PIECE_BYTES // (_WIDTH * 4), [], []
    for number in range(run.rounds + 1):
        begun = time.monotonic()
        checkpoint = open_checkpoint(folder)
        for first in range(0, rows, step):
            checkpoint.rows(name, first, min(first + step, rows))
        between = time.monotonic()
        with Path("/dev/null").open("wb") as nowhere:
            subprocess.run(["cat", *sorted(folder.glob("*.distcp"))], check=True, stdout=nowhere)
        if number:  # the first round only brings the files into memory
            read_s.append(between - begun)
            cat_s.append(time.monotonic() - between)
    shutil.rmtree(folder)
    run.say(f"read in {read_s[-1]:.2f} s, by cat in {cat_s[-1]:.2f} s")
    return read_s, cat_s


def tables(figures: ShardsFigures) -> tuple[Table, ...]:
    """Return a table of reading and one of the exports."""
    reading = Table(
        title="All rows of a checkpoint, from the page cache: seconds, and the ratio (lowest to highest)",
        columns=("rounds", "read", "cat", "read against cat"),
        rows=(
            (
                str(len(figures.read_s)),
                Spread.of(figures.read_s).text(),
                Spread.of(figures.cat_s).text(),
                figures.reading.text(),
            ),
        ),
    )
    exports = Table(
        title="Exports with sharded tables; memory of the rank that used most",
        columns=("table", "ranks", "seconds", "of them writing tables", "anonymous", "mapped"),
        rows=tuple(
            (
                f"{each.table_bytes / 1e9:g} GB",
                str(each.ranks),
                f"{each.attempt_s:.0f}",
                f"{each.tables_s:.0f}",
                f"{each.anonymous / 1e9:.2f} GB",
                f"{each.mapped / 1e9:.2f} GB",
            )
            for each in figures.runs
        ),
    )
    return (reading, exports)


def draw(figures: ShardsFigures, figure: Figure) -> None:
    """Plot the memory of a rank over the number of ranks, for each size of table."""
    lines: dict[str, list[float]] = {}
    for each in figures.runs:
        lines.setdefault(f"{each.table_bytes / 1e9:g} GB: anonymous", []).append(each.anonymous / 1e9)
        lines.setdefault(f"{each.table_bytes / 1e9:g} GB: mapped", []).append(each.mapped / 1e9)
    titles = Titles(title="Peak memory of a rank, sharded tables", x="ranks", y="GB")
    draw_lines(figure.subplots(), [float(ranks) for ranks in _RANKS], lines, titles)


if __name__ == "__main__":
    sys.exit(main())

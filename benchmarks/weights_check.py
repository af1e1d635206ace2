"""Measure reading a package back against reading its file and the checkpoint once, from a cold page cache.

The package is an item tower's with one large table of random numbers, kept as trained and in int8. Neither
file has holes, because a hole costs a reader nothing. Both are evicted from the page cache before each
measurement. The model's own mapping of the checkpoint is given up first, since mapped pages stay cached.
"""

import argparse
import functools
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_lines
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, ratios
from benchmarks.measure.child_process import read_memory
from benchmarks.measure.large_table import large_table_spec
from exporter.options.tables import Tables
from exporter.packages.parts import assemble_parts, compile_part, plan_packages, trace_parts
from exporter.pipeline.open_tower import open_tower
from exporter.readback.packages import WrittenPackage, read_back
from exporter.readback.tower_weights import TowerWeights
from exporter.spec import ExportSpec
from exporter.stages import StageClock
from exporter.towers.plan import plan_towers

_BYTES, _QUICK = 16e9, 0.1e9
_DTYPES = ("fp32", "int8")
_READ = 8 << 20  # bytes of a plain read
_PERIOD_S = 0.02  # between two samples of memory


class CheckRun(BaseModel):
    """Seconds of each round, and the memory that the comparison took beyond what the process had."""

    dtype: str
    table_bytes: int
    package_bytes: int
    checkpoint_bytes: int
    reading_s: tuple[float, ...]
    comparing_s: tuple[float, ...]
    anonymous: tuple[int, ...]  # bytes at the peak

    @property
    def ratio(self) -> Spread:
        return ratios(self.comparing_s, self.reading_s)


class CheckFigures(BaseModel):
    """Figures of all dtypes."""

    runs: tuple[CheckRun, ...]


def main() -> int:
    parser = build_parser("weights_check", __doc__)
    parser.add_argument(
        "--bytes", type=float, dest="table_bytes", metavar="N", help=f"of the table; default: {_BYTES:g}"
    )
    parser.add_argument("--dtype", action="append", choices=_DTYPES, help="of the table; may repeat")
    given = parser.parse_args()
    return run_benchmark("weights_check", given, functools.partial(measure, given))


def measure(given: argparse.Namespace, run: Run) -> Report:
    """Write one checkpoint, and of each dtype a package; read and compare in turn."""
    table_bytes = int(given.table_bytes or (_QUICK if run.quick else _BYTES))
    spec = large_table_spec(run.folder, table_bytes, real=True)
    run.say(f"checkpoint of {table_bytes / 1e9:g} GB written")
    figures = CheckFigures(
        runs=tuple(_one(run, spec, table_bytes, dtype) for dtype in given.dtype or _DTYPES)
    )
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def _one(run: Run, spec: ExportSpec, table_bytes: int, dtype: str) -> CheckRun:
    folder = run.folder / dtype
    folder.mkdir()
    changed = {} if dtype == "fp32" else {"tables": Tables.model_validate({"dtype": dtype})}
    packages, origin = _write(spec.model_copy(update=changed), folder)
    checkpoint = sorted(Path(spec.checkpoint_uri).iterdir())
    files = [*checkpoint, *(package.file.path for package in packages)]
    reading, comparing, anonymous = [], [], []
    for number in range(run.rounds):
        reading.append(_time(functools.partial(_read, files), files))
        with _AnonymousPeak() as peak:
            comparing.append(_time(functools.partial(read_back, packages, origin), files))
        anonymous.append(peak.grown)
        run.say(f"{dtype}, round {number + 1}: read {reading[-1]:.1f} s, compared {comparing[-1]:.1f} s")
    size = sum(package.file.size for package in packages)
    for package in packages:
        package.file.path.unlink()
    return CheckRun(
        dtype=dtype,
        table_bytes=table_bytes,
        package_bytes=size,
        checkpoint_bytes=sum(path.stat().st_size for path in checkpoint),
        reading_s=tuple(reading),
        comparing_s=tuple(comparing),
        anonymous=tuple(anonymous),
    )


def _write(spec: ExportSpec, folder: Path) -> tuple[list[WrittenPackage], TowerWeights]:
    """Write the tower's package, as an export does, and let go of the model's weights."""
    text = Path(spec.config_uri.removeprefix("file://")).read_text() if spec.config_uri else ""
    [planned] = plan_towers(spec, text)
    opened = open_tower(planned, spec, text, folder, StageClock(planned.name, lambda event: None))
    plan = plan_packages(opened.tower, spec)
    traced = trace_parts(plan.parts, plan.first_inputs(opened.inputs), opened.device)
    parts = assemble_parts([compile_part(each, "unused") for each in traced], folder)
    packages = [
        WrittenPackage(
            title=opened.tower.title,
            file=part.package,
            code=part.code.code,
            module=part.part.tower.module,
            weights={},
        )
        for part in parts
    ]
    opened.filled.module.to("meta")
    return packages, TowerWeights(filled=opened.filled, tables=opened.lowered.tables)


def _read(files: Iterable[Path]) -> None:
    buffer = bytearray(_READ)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _time(work: Callable[[], object], files: Iterable[Path]) -> float:
    """Return the seconds of `work` with none of the files in the page cache."""
    gc.collect()  # unmaps what is no longer used
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


class _AnonymousPeak:
    """Samples this process's anonymous memory while the context lasts."""

    def __init__(self) -> None:
        self.grown = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "_AnonymousPeak":
        self._before = read_memory(os.getpid(), "RssAnon")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PERIOD_S):
            self.grown = max(self.grown, read_memory(os.getpid(), "RssAnon") - self._before)


def tables(figures: CheckFigures) -> tuple[Table, ...]:
    """Return one row per dtype."""
    rows = tuple(
        (
            f"{each.table_bytes / 1e9:g} GB, {each.dtype}",
            f"{each.checkpoint_bytes / 1e9:.2f} and {each.package_bytes / 1e9:.2f} GB",
            Spread.of(each.reading_s).text(),
            Spread.of(each.comparing_s).text(),
            each.ratio.text(),
            f"{max(each.anonymous) / 1e6:.0f} MB",
        )
        for each in figures.runs
    )
    columns = ("table", "checkpoint and package", "read, s", "compared, s", "ratio", "anonymous, at most")
    return (Table(title="Reading back against reading both files once", columns=columns, rows=rows),)


def draw(figures: CheckFigures, figure: Figure) -> None:
    """Plot the seconds of each round."""
    rounds = [float(number + 1) for number in range(len(figures.runs[0].reading_s))]
    lines = {}
    for each in figures.runs:
        lines[f"{each.dtype}: read once"] = list(each.reading_s)
        lines[f"{each.dtype}: compared"] = list(each.comparing_s)
    titles = Titles(title="Reading a package back", x="round", y="seconds")
    draw_lines(figure.subplots(), rounds, lines, titles)


if __name__ == "__main__":
    sys.exit(main())

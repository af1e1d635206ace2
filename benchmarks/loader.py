"""Measure `slipway.loader`: loading a package of 5 GB, its memory in four processes, swaps, and single calls.

The large package is an item tower with one large table, in the prepared layout and warm in the page cache.
Calls are compared, in turn, with torch's own runner of the published packages: in both modes, both towers.
"""

import argparse
import functools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, percentile
from benchmarks.measure.exports import Place, export
from benchmarks.measure.large_table import large_table_spec
from benchmarks.serving.loader_process import Compared, Held, Loaded, Swapped
from exporter.spec import ExportSpec, Mode, TowerName
from slipway.loader import prepare

_TABLE, _QUICK_TABLE = 5e9, 50e6  # bytes
_SMALL_TABLE = 128_000
_LOADS, _QUICK_LOADS = 10, 2
_CALLS, _QUICK_CALLS = 1_000_000, 5_000  # while the tower is swapped
_PROCESSES = 4
_Answer = TypeVar("_Answer", bound=BaseModel)
_ROWS = Path(__file__).parents[1] / "tests" / "fixtures" / "torcheasyrec" / "data" / "train.parquet"


class CallFigures(BaseModel):
    """Calls of one tower, against torch's runner of the same packages."""

    name: str
    inputs: int
    bare_us: Spread
    more_us: Spread  # of a call, in each round
    different: int  # of 100 calls: those whose answers differ in any bit


class LoaderFigures(BaseModel):
    """All figures; `torn` are answers that are neither release's."""

    weights_bytes: int
    load_s: Spread
    anonymous_share: Spread  # bytes of anonymous memory per byte of weights
    copies: float  # memory of four processes, as a multiple of the weights
    swaps: int
    swap_s: Spread
    swap_p99_s: float
    large_swap_s: Spread
    answers: tuple[int, int]  # of the older release, and of the newer
    torn: int
    calls: tuple[CallFigures, ...]


class LoaderProcess:
    """A process that loads and calls towers; a context manager."""

    def __enter__(self) -> "LoaderProcess":
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.serving.loader_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *ended: object) -> None:
        self._process.kill()
        self._process.communicate()

    def send(self, do: str, **request: object) -> None:
        """Send a request, whose answer must be received before the next one is sent."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()

    def receive(self, kind: type[_Answer]) -> _Answer:
        """Wait for the answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process that loads towers ended with status {self._process.wait()}")
        return kind.model_validate_json(line)


def main() -> int:
    parser = build_parser("loader", __doc__)
    parser.add_argument("--prepared", type=Path, metavar="DIR", help="a large item tower that was prepared")
    given = parser.parse_args()
    return run_benchmark("loader", given, functools.partial(measure, given))


def measure(given: argparse.Namespace, run: Run) -> Report:
    """Export and prepare what is missing, then measure."""
    large: Path = given.prepared or _large(run)
    weights = [path.stat().st_size for path in large.glob("item/packages/*/weights.bin")]
    for path in large.glob("item/packages/*/*"):
        if path.is_file():
            subprocess.run(["cat", path], check=True, stdout=subprocess.DEVNULL)  # into the page cache
    loads = [_load(large) for _ in range(_QUICK_LOADS if run.quick else _LOADS)]
    run.say(f"loaded in {loads[-1].seconds * 1e3:.0f} ms")
    copies = _memory(large) / sum(weights)
    run.say(f"{_PROCESSES} processes: {copies:.3f} of the weights")
    large_swaps = _swaps(run, [large, large], _QUICK_CALLS)
    small = _small(run)
    swaps = _swaps(run, small["unified"], _QUICK_CALLS if run.quick else _CALLS)
    if not swaps.distinct:
        raise SystemExit("both releases give the same answers")
    figures = LoaderFigures(
        weights_bytes=sum(weights),
        load_s=Spread.of(each.seconds for each in loads),
        anonymous_share=Spread.of(each.anonymous / sum(weights) for each in loads),
        copies=copies,
        swaps=len(swaps.seconds),
        swap_s=Spread.of(swaps.seconds),
        swap_p99_s=percentile(swaps.seconds, 0.99),
        large_swap_s=Spread.of(large_swaps.seconds),
        answers=(swaps.older, swaps.newer),
        torn=swaps.torn,
        calls=tuple(
            _calls(run, mode, folders[0], tower)
            for mode, folders in small.items()
            for tower in ("user", "item")
        ),
    )
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def _large(run: Run) -> Path:
    folder = run.folder / "large"
    folder.mkdir()
    spec = large_table_spec(folder, int(_QUICK_TABLE if run.quick else _TABLE), real=False)
    return _export(run, folder, spec)


def _small(run: Run) -> Mapping[str, Sequence[Path]]:
    """Return, by mode, two prepared artifacts that differ in their weights only."""
    prepared: dict[str, list[Path]] = {}
    for mode in Mode:
        for release in ("older", "newer"):
            folder = run.folder / f"{mode}-{release}"
            folder.mkdir()
            spec = large_table_spec(folder, _SMALL_TABLE, real=True)
            both = {"towers": (TowerName.USER, TowerName.ITEM), "sample_input_uri": _ROWS.as_uri()}
            prepared.setdefault(mode, []).append(
                _export(run, folder, spec.model_copy(update={**both, "mode": mode}))
            )
    return prepared


def _export(run: Run, folder: Path, spec: ExportSpec) -> Path:
    compiler, cache = run.folder / "compiler", run.folder / "code"
    export(spec, Place(folder=folder, compiler=compiler, code_cache=cache), keep=folder / "artifact")
    run.say(f"exported {folder.name}")
    return prepare(folder / "artifact", folder / "prepared")


def _load(folder: Path) -> Loaded:
    with LoaderProcess() as process:
        process.send("measure_load", folder=str(folder), tower="item")
        return process.receive(Loaded)


def _memory(folder: Path) -> float:
    """Return the bytes by which four processes grow when they load a tower and map all of its weights."""
    with ExitStack() as running:
        processes = [running.enter_context(LoaderProcess()) for _ in range(_PROCESSES)]
        before = _ask_all(processes, Held, "measure_memory")
        _ask_all(processes, Loaded, "measure_load", folder=str(folder), tower="item")
        _ask_all(processes, Held, "measure_memory")  # the first to map pages bears all of them
        after = _ask_all(processes, Held, "measure_memory")
    return sum(each.whole for each in after) - sum(each.whole for each in before)


def _ask_all(
    processes: Sequence[LoaderProcess], kind: type[_Answer], do: str, **request: object
) -> list[_Answer]:
    for process in processes:
        process.send(do, **request)
    return [process.receive(kind) for process in processes]


def _swaps(run: Run, folders: Sequence[Path], calls: int) -> Swapped:
    with LoaderProcess() as process:
        paths = [str(each) for each in folders]
        process.send("measure_swaps", folders=paths, tower="item", calls=calls, threads=2)
        answer = process.receive(Swapped)
    run.say(f"swapped {len(answer.seconds)} times in {calls:,} calls, {answer.torn} torn")
    return answer


def _calls(run: Run, mode: str, folder: Path, tower: str) -> CallFigures:
    packages = folder.parent / "artifact" / tower / "aoti"
    chain = [path for path in (packages / "sparse_model.pt2", packages / "aoti_model.pt2") if path.exists()]
    with LoaderProcess() as process:
        process.send(
            "compare_calls",
            folder=str(folder),
            packages=[str(each) for each in chain],
            tower=tower,
            rounds=4 * run.rounds,
        )
        answer = process.receive(Compared)
    return CallFigures(
        name=f"{tower}, {mode}",
        inputs=answer.inputs,
        bare_us=Spread.of(answer.bare_us),
        more_us=Spread.of(own - bare for own, bare in zip(answer.own_us, answer.bare_us, strict=True)),
        different=answer.different,
    )


def tables(figures: LoaderFigures) -> tuple[Table, ...]:
    """Return a table of the large package and one of calls."""
    large = Table(
        title=f"A package with {figures.weights_bytes / 1e9:.2g} GB of weights, prepared, in the page cache",
        columns=("figure", "measured", "aim"),
        rows=(
            ("seconds to load", figures.load_s.text(), "at most 0.15"),
            ("anonymous bytes per byte", figures.anonymous_share.text(), "at most 0.01"),
            (f"memory of {_PROCESSES} processes, in copies", f"{figures.copies:.4f}", "at most 1.05"),
            ("milliseconds to swap", _milliseconds(figures.large_swap_s), "at most 50"),
            (
                f"the same, {figures.swaps:,} times in {sum(figures.answers) + figures.torn:,} calls",
                f"{_milliseconds(figures.swap_s)}; p99 {figures.swap_p99_s * 1e3:.0f}",
                "at most 50",
            ),
            ("answers of neither release", str(figures.torn), "0"),
        ),
    )
    calls = Table(
        title="A call of eight rows against torch's runner, microseconds",
        columns=("tower", "inputs", "runner", "more by the loader", "aim", "differing answers of 100"),
        rows=tuple(
            (
                each.name,
                str(each.inputs),
                each.bare_us.text(),
                each.more_us.text(),
                "at most 20",
                str(each.different),
            )
            for each in figures.calls
        ),
    )
    return (large, calls)


def _milliseconds(seconds: Spread) -> str:
    return Spread.of(each * 1e3 for each in seconds.values).text()


def draw(figures: LoaderFigures, figure: Figure) -> None:
    """Plot what a call costs more than torch's runner."""
    titles = Titles(title="A call by the loader, beyond torch's runner", y="microseconds")
    groups = [each.name for each in figures.calls]
    draw_bars(figure.subplots(), groups, {"more": [each.more_us for each in figures.calls]}, titles, aim=20)


if __name__ == "__main__":
    sys.exit(main())

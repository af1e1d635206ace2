"""Compare Slipway with another exporter, run in turn: the time of exports, and of calls of their packages.

The other exporter is a command that keeps the contract in benchmarks/README.md. Each round is one run of
either, in alternating order, on the same models, rows and cores. Only ratios are printed and recorded.
"""

import argparse
import functools
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.contest.contest import (
    FRESH,
    NEW_MODEL,
    NEW_WEIGHTS,
    SITUATIONS,
    SIZES,
    Contest,
    ExportRatios,
    LatencyRatios,
)
from benchmarks.contest.contract import Contender, parse_command
from benchmarks.contest.models import NAMES, WIDE
from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars
from benchmarks.harness.report import Report, Table
from benchmarks.harness.requirements import REQUIREMENTS

_CHECKED = "AOTI_RUNTIME_CHECK_INPUTS=1"  # as servers of Slipway's packages should have it
OURS = ("env", _CHECKED, sys.executable, "-m", "benchmarks.contest.slipway_program")
_INSTALLATION = (sys.executable, "-m", "worker.warm_up")  # the step of `make install` and of the images
_PARTS = ("export", "latency")
_EXPECTED = {FRESH: "1.2", NEW_WEIGHTS: "0.25", NEW_MODEL: "1.2"}  # from two rounds by hand
_AIMS = {FRESH: "0.5", NEW_WEIGHTS: "", NEW_MODEL: "0.5"}
_EXPECTED_CALLS = {1: "0.66", 8: "0.82", 32: "0.90", 128: "0.97", 512: "1.0"}  # by hand, up to 128
_AIM_EXPORT, _AIM_CALLS = 0.5, 0.8
_LIMIT_S = 600.0


class PeerFigures(BaseModel):
    """All ratios, and a line for each part that a program has failed to do."""

    exports: tuple[ExportRatios, ...]
    latencies: tuple[LatencyRatios, ...]
    failures: tuple[str, ...]


def main() -> int:
    """Compare, and return 1 if a program has failed to do a part; without a peer there is nothing to do."""
    parser = _parser()
    given = parser.parse_args()
    if given.peer is None:
        sys.stdout.write(f"peer: {REQUIREMENTS['peer'].skipped}\n")
        return 0
    if max(given.cores, *given.threads) > len(os.sched_getaffinity(0)):
        parser.error("--cores, --threads: there are not as many cores")
    if NEW_WEIGHTS in given.situations and FRESH not in given.situations:
        parser.error(f"--situations: {NEW_WEIGHTS} follows the export of {FRESH}, which is left out")
    for command in filter(None, (given.peer, given.peer_latency)):
        if shutil.which(command[0]) is None:
            parser.error(f"there is no program {command[0]}")
    failures: list[str] = []
    status = run_benchmark("peer", given, functools.partial(_measure, given=given, failures=failures))
    return status or min(1, len(failures))


def _parser() -> argparse.ArgumentParser:
    parser = build_parser("peer", __doc__)
    add = parser.add_argument
    add("--peer", type=parse_command, metavar="COMMAND", help="the other program; without it nothing is done")
    add(
        "--peer-latency",
        type=parse_command,
        metavar="COMMAND",
        help="the program whose packages are called, if it is another one; default: that of --peer",
    )
    add("--models", nargs="+", choices=NAMES, default=list(WIDE), help="default: %(default)s")
    add("--parts", nargs="+", choices=_PARTS, default=list(_PARTS), help="default: %(default)s")
    add(
        "--situations",
        nargs="+",
        choices=SITUATIONS,
        default=list(SITUATIONS),
        help="of exports; default: all",
    )
    add("--cores", type=int, default=1, metavar="N", help="cores of an export; default: %(default)s")
    add("--threads", nargs="+", type=int, default=[1, 2], metavar="N", help="of calls; default: %(default)s")
    add(
        "--limit",
        type=float,
        default=_LIMIT_S,
        metavar="SECONDS",
        help="after which a command has failed; default: %(default)s",
    )
    return parser


def _measure(run: Run, *, given: argparse.Namespace, failures: list[str]) -> Report:
    """Compare each part of each model; a failure ends the part of one model only."""

    def contender(name: str, command: tuple[str, ...]) -> Contender:
        limit = timedelta(seconds=given.limit)
        return Contender(name=name, command=command, limit=limit, scratch=run.folder / f"scratch-{name}")

    peer = contender("peer", given.peer)
    contest = Contest(
        run=run,
        ours=replace(contender("slipway", OURS), installation=_INSTALLATION),
        peer=peer,
        timed=contender("peer-latency", given.peer_latency) if given.peer_latency else peer,
        cores=given.cores,
        situations=(FRESH, NEW_WEIGHTS) if run.quick else tuple(given.situations),
        failures=failures,
    )
    exports: list[ExportRatios] = []
    latencies: list[LatencyRatios] = []
    for name in given.models[:1] if run.quick else given.models:
        if "export" in given.parts:
            exports += contest.compare_exports(name)
        if "latency" in given.parts:
            latencies += contest.compare_calls(name, tuple(given.threads))
    if not exports and not latencies:
        raise SystemExit("peer: nothing was measured, and nothing is written")
    figures = PeerFigures(exports=tuple(exports), latencies=tuple(latencies), failures=tuple(failures))
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def tables(figures: PeerFigures) -> tuple[Table, ...]:
    """Return the ratios beside what was expected and what is aimed at, and the failures if there are any."""
    found = []
    if figures.exports:
        found.append(
            Table(
                title="Exports, Slipway's time over the peer's: median of the rounds (lowest to highest)",
                columns=("model", "situation", "rounds", "time", "processor time", "expected", "aim"),
                rows=tuple(
                    (
                        each.model,
                        each.situation,
                        str(len(each.wall.values)),
                        each.wall.text(),
                        each.work.text(),
                        _EXPECTED[each.situation],
                        _AIMS[each.situation],
                    )
                    for each in figures.exports
                ),
            )
        )
    if figures.latencies:
        found.append(_calls_table(figures.latencies))
    if figures.failures:
        failures = tuple((each.replace("|", "\\|"),) for each in figures.failures)
        found.append(Table(title="Not done", columns=("what failed",), rows=failures))
    return tuple(found)


def _calls_table(latencies: Sequence[LatencyRatios]) -> Table:
    by_tower: dict[tuple[str, str, int], dict[int, str]] = {}
    for each in latencies:
        by_tower.setdefault((each.model, each.tower, each.threads), {})[each.size] = each.p50.text()
    sizes = sorted({each.size for each in latencies})
    return Table(
        title="Calls by size of batch, Slipway's p50 over the peer's: median of rounds (lowest to highest)",
        columns=("model", "tower", "threads", *map(str, sizes)),
        rows=(
            *(
                (model, tower, str(threads), *(texts[size] for size in sizes))
                for (model, tower, threads), texts in by_tower.items()
            ),
            ("expected", "", "", *(_EXPECTED_CALLS[size] for size in sizes)),
            ("aim", "", "", *(f"{_AIM_CALLS:g}" for _ in sizes)),
        ),
    )


def draw(figures: PeerFigures, figure: Figure) -> None:
    """Plot the ratios of exports on the left, and those of calls on the right."""
    left, right = figure.subplots(1, 2)
    _draw_exports(figures.exports, left)
    _draw_calls(figures.latencies, right)


def _draw_exports(exports: Sequence[ExportRatios], axes: Axes) -> None:
    situations = dict.fromkeys(each.situation for each in exports)
    counts = Counter(each.model for each in exports)
    models = [model for model, count in counts.items() if count == len(situations)]
    series = {
        situation: [each.wall for each in exports if each.situation == situation and each.model in models]
        for situation in situations
    }
    if models:
        draw_bars(axes, models, series, Titles(title="Exports", y="time / the peer's"), aim=_AIM_EXPORT)


def _draw_calls(latencies: Sequence[LatencyRatios], axes: Axes) -> None:
    one = [each for each in latencies if each.threads == min(other.threads for other in latencies)]
    series = {
        name: [each.p50 for each in one if f"{each.model} {each.tower}" == name]
        for name in dict.fromkeys(f"{each.model} {each.tower}" for each in one)
    }
    if series:
        sizes = [str(size) for size in SIZES if size in {each.size for each in one}]
        titles = Titles(title=f"Calls, threads: {one[0].threads}", x="batch", y="p50 / the peer's")
        draw_bars(axes, sizes, series, titles, aim=_AIM_CALLS)


if __name__ == "__main__":
    sys.exit(main())

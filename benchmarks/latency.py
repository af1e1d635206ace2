"""Time calls of a tower: package, eager, `torch.compile`, and the two packages of `two_stage`.

The towers are those of the demo model on MovieLens rows, and of recorded models on their rows: `dlrm_hstu`
and `hstu_match` with layers of 64 and 512, of which eager and package alone are compared. Weights are random.
A process for each number of threads calls every contender in turn on the same batches, with the input checks
of packages on. `torch.compile` gets the traced program, because it would break the modules themselves into
many pieces.
"""

import functools
import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, format_number, percentile, ratios
from benchmarks.measure.exports import Place, export
from benchmarks.measure.latency_process import (
    COMPILED,
    CONTENDERS,
    EAGER,
    PACKAGE,
    TWO_PACKAGES,
    CallTimes,
    LatencyRequest,
    LatencyTimes,
    Subject,
)
from benchmarks.measure.models import Model, demo_model, ranking_model, retrieval_model, widen
from exporter.spec import Mode, TowerName
from processes.guarded_process import GuardedProcess

_SIZES, _FEW_SIZES = (1, 8, 32, 128, 512), (1, 8)
_WIDTHS = (64, 512)
_AIM = 0.5  # of eager's p50
_THREADS = (1, 2)
_ROUND_S, _MOST_CALLS = 0.6, 300
_GRACE = timedelta(seconds=2)


class Latencies(BaseModel):
    """CallTimes of a contender's calls, and their ratios to eager's in the same rounds."""

    subject: str
    threads: int
    size: int
    contender: str
    calls: int
    p50: Spread  # milliseconds, median of each round
    p99: float  # milliseconds, over all calls
    rows_per_second: Spread
    p50_to_eager: Spread
    p99_to_eager: float
    work_to_eager: (
        Spread  # ratio of processor times of all threads, p50: other work on the machine does not change it
    )


class LatencyFigures(BaseModel):
    """Figures of all contenders, towers, batches and threads."""

    latencies: tuple[Latencies, ...]


def main() -> int:
    return run_benchmark("latency", build_parser("latency", __doc__).parse_args(), measure)


def measure(run: Run) -> Report:
    """Export in both modes, then measure in one process for each number of threads."""
    demo = demo_model(run.folder)
    if run.quick:
        subjects = _subjects(run, demo, (TowerName.ITEM,), tuple(Mode))
    else:
        subjects = _subjects(run, demo, (TowerName.USER, TowerName.ITEM), tuple(Mode))
        for width in _WIDTHS:
            ranking, retrieval = widen(ranking_model(), width), widen(retrieval_model(), width)
            subjects += _subjects(run, ranking, (TowerName.MODEL,), (Mode.UNIFIED,))
            subjects += _subjects(run, retrieval, (TowerName.USER,), (Mode.UNIFIED,))
    times = [_process(run, subjects, threads) for threads in _THREADS]
    figures = LatencyFigures(latencies=tuple(each for one in times for each in compare_to_eager(one)))
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def _subjects(
    run: Run, model: Model, towers: tuple[TowerName, ...], modes: tuple[Mode, ...]
) -> list[Subject]:
    spec = model.spec(run.folder, seed=1).only(towers)
    kept = {mode: run.folder / f"{model.name}-{mode}" for mode in modes}
    for mode, folder in kept.items():
        place = Place(folder=run.folder, compiler=run.folder / "compiler", users_code=True)
        done = export(spec.model_copy(update={"mode": mode}), place, keep=folder)
        run.say(f"{model.name}, {mode}: exported in {done.attempt_s:.0f} s")
    return [
        Subject(
            name=f"{model.name} {tower}",
            tower=tower,
            spec=spec,
            unified=kept[Mode.UNIFIED],
            two_stage=kept.get(Mode.TWO_STAGE),
        )
        for tower in towers
    ]


def _process(run: Run, subjects: list[Subject], threads: int) -> LatencyTimes:
    scratch = run.folder / f"threads-{threads}"
    scratch.mkdir()
    request = LatencyRequest(
        subjects=tuple(subjects),
        sizes=_FEW_SIZES if run.quick else _SIZES,
        threads=threads,
        rounds=2 if run.quick else run.rounds,
        round_s=0.05 if run.quick else _ROUND_S,
        most_calls=_MOST_CALLS,
        scratch=scratch,
        result=scratch / "times.json",
    )
    (scratch / "request.json").write_text(request.model_dump_json())
    process = GuardedProcess.start(
        [sys.executable, "-m", "benchmarks.measure.latency_process", str(scratch / "request.json")],
        log=scratch / "log",
        grace=_GRACE,
        environment={
            "AOTI_RUNTIME_CHECK_INPUTS": "1",
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "passive",  # as in attempts and in servers of Slipway packages
            "TORCHINDUCTOR_CACHE_DIR": str(run.folder / "compiler"),
            "TMPDIR": str(scratch),
        },
    )
    try:
        if process.wait() != 0:
            raise SystemExit(f"the process with {threads} threads failed:\n{process.last_lines(20)}")
    finally:
        process.stop()
    run.say(f"{threads} threads measured")
    return LatencyTimes.model_validate_json(request.result.read_text())


def compare_to_eager(measured: LatencyTimes) -> list[Latencies]:
    """Compare each contender with eager."""
    eager = {(each.subject, each.size): each for each in measured.times if each.contender == EAGER}
    return [_one(each, eager[each.subject, each.size], measured.threads) for each in measured.times]


def _one(times: CallTimes, eager: CallTimes, threads: int) -> Latencies:
    p50, eager_p50 = ([percentile(each, 0.5) for each in of.rounds] for of in (times, eager))
    pooled, eager_pooled = ([call for each in of.rounds for call in each] for of in (times, eager))
    work, eager_work = ([percentile(each, 0.5) for each in of.work] for of in (times, eager))
    p99 = percentile(pooled, 0.99)
    return Latencies(
        subject=times.subject,
        threads=threads,
        size=times.size,
        contender=times.contender,
        calls=len(pooled),
        p50=Spread.of(p50),
        p99=p99,
        rows_per_second=Spread.of(times.size / (sum(each) / len(each) / 1e3) for each in times.rounds),
        p50_to_eager=ratios(p50, eager_p50),
        p99_to_eager=p99 / percentile(eager_pooled, 0.99),
        work_to_eager=ratios(work, eager_work),
    )


def tables(figures: LatencyFigures) -> tuple[Table, ...]:
    """Return a table of ratios to eager for each tower, then one of all times."""
    return (
        Table(
            title="p50 against eager's, round by round: median (lowest to highest); the aim is 0.5",
            columns=(
                "tower",
                "threads",
                "batch",
                PACKAGE,
                TWO_PACKAGES,
                COMPILED,
                "package: p99",
                "processor time",
            ),
            rows=tuple(
                (
                    subject,
                    str(threads),
                    str(size),
                    *(
                        by_name[name].p50_to_eager.text() if name in by_name else "–"
                        for name in (PACKAGE, TWO_PACKAGES, COMPILED)
                    ),
                    format_number(by_name[PACKAGE].p99_to_eager),
                    by_name[PACKAGE].work_to_eager.text(),
                )
                for (subject, threads, size), by_name in group_contenders(figures.latencies).items()
            ),
        ),
        Table(
            title="Milliseconds of a call, and rows per second",
            columns=("tower", "threads", "batch", "contender", "p50", "p99", "rows per second", "calls"),
            rows=tuple(
                (
                    each.subject,
                    str(each.threads),
                    str(each.size),
                    each.contender,
                    format_number(each.p50.median),
                    format_number(each.p99),
                    format_number(each.rows_per_second.median),
                    str(each.calls),
                )
                for each in figures.latencies
            ),
        ),
    )


def group_contenders(
    latencies: Sequence[Latencies],
) -> Mapping[tuple[str, int, int], Mapping[str, Latencies]]:
    """Group the contenders by tower, number of threads and batch."""
    found: dict[tuple[str, int, int], dict[str, Latencies]] = {}
    for each in latencies:
        found.setdefault((each.subject, each.threads, each.size), {})[each.contender] = each
    return found


def draw(figures: LatencyFigures, figure: Figure) -> None:
    """Plot p50 against eager's, for each tower and number of threads."""
    subjects = list(dict.fromkeys(each.subject for each in figures.latencies))
    threads = sorted({each.threads for each in figures.latencies})
    figure.set_size_inches(4 * len(subjects), 3.2 * len(threads))
    plots = figure.subplots(len(threads), len(subjects), squeeze=False, sharey=True)
    for row, count in enumerate(threads):
        for column, subject in enumerate(subjects):
            chosen = [each for each in figures.latencies if (each.subject, each.threads) == (subject, count)]
            series = {
                name: [each.p50_to_eager for each in chosen if each.contender == name]
                for name in CONTENDERS
                if name != EAGER and any(each.contender == name for each in chosen)
            }
            sizes = [str(each.size) for each in chosen if each.contender == EAGER]
            titles = Titles(title=f"{subject}, threads: {count}", x="batch", y="p50 / eager's")
            draw_bars(plots[row][column], sizes, series, titles, aim=_AIM)


if __name__ == "__main__":
    sys.exit(main())

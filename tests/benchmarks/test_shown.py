"""Figures of every kind become tables and plots."""

import pytest
from matplotlib.figure import Figure

from benchmarks import latency, service, table_memory, towers, warm
from benchmarks.harness.report import Table
from benchmarks.harness.statistics import Spread
from benchmarks.measure.exports import ExportRun
from benchmarks.measure.latency_process import CONTENDERS, LatencyTimes, Times
from benchmarks.measure.process_memory import Peak
from exporter.stages import Stage

_SPREAD = Spread.of([1.0, 2.0, 3.0])
_RUN = ExportRun(
    command_s=9.0,
    attempt_s=8.0,
    stages_s={"user": {Stage.TRACE: 1.0, Stage.COMPILE: 2.0}},
    code={"user": "cold"},
    peak=Peak(anonymous=10**9, mapped=10**8, whole=10**9),
)


def _latency() -> tuple[tuple[Table, ...], Figure]:
    times = tuple(
        Times(subject="user", size=8, values=1.0, contender=each, rounds=((1.0,),), work=((1.0,),))
        for each in CONTENDERS
    )
    measured = [latency.compare_to_eager(LatencyTimes(threads=threads, times=times)) for threads in (1, 2)]
    figures = latency.LatencyFigures(latencies=tuple(each for one in measured for each in one))
    return latency.tables(figures), _drawn(lambda figure: latency.draw(figures, figure))


def _memory() -> tuple[tuple[Table, ...], Figure]:
    run = table_memory.TableRun.of(10**9, _RUN, real=False)
    figures = table_memory.MemoryFigures(
        runs=(run, run), others=(run,), failed=("40 GB: why",), anonymous_slope=0.0, mapped_slope=1.0
    )
    return table_memory.tables(figures), _drawn(lambda figure: table_memory.draw(figures, figure))


def _towers() -> tuple[tuple[Table, ...], Figure]:
    figures = towers.TowersFigures.of([_RUN], [_RUN])
    return towers.tables(figures), _drawn(lambda figure: towers.draw(figures, figure))


def _warm() -> tuple[tuple[Table, ...], Figure]:
    figures = warm.WarmFigures(models=(warm.ModelFigures.of("demo", [warm.Round(cold=_RUN, warm=_RUN)]),))
    return warm.tables(figures), _drawn(lambda figure: warm.draw(figures, figure))


def _service() -> tuple[tuple[Table, ...], Figure]:
    polls = tuple(
        service.Polls(stored=1, answered=each, p50=_SPREAD, p99=_SPREAD, p50_ratio=_SPREAD, p99_ratio=_SPREAD)
        for each in ("200", "304")
    )
    figures = service.ServiceFigures(
        polls=polls,
        accepted=(service.Accepted(clients=1, jobs=_SPREAD, bare=_SPREAD, ratio=_SPREAD),),
        first_stage=service.FirstStage(running=_SPREAD, stage=_SPREAD, importing=_SPREAD, ratio=_SPREAD),
    )
    return service.tables(figures), _drawn(lambda figure: service.draw(figures, figure))


def _drawn(draw: object) -> Figure:
    figure = Figure()
    assert callable(draw)
    draw(figure)
    return figure


@pytest.mark.parametrize("shown", [_latency, _memory, _towers, _warm, _service])
def test_tables_are_whole_and_plots_have_axes(shown: object) -> None:
    assert callable(shown)
    tables, figure = shown()
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    assert figure.axes and all(axes.get_title() for axes in figure.axes)

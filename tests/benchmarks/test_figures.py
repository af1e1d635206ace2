"""From what was measured to what is said of it."""

from benchmarks.latency import LatencyFigures, compare_to_eager, group_contenders
from benchmarks.latency import tables as latency_tables
from benchmarks.measure.exports import ExportRun
from benchmarks.measure.latency_process import CONTENDERS, LatencyTimes, Times
from benchmarks.measure.process_memory import Peak
from benchmarks.table_memory import TableRun
from benchmarks.warm import ModelFigures, Round
from exporter.stages import Stage


def _run(trace: float, compiling: float, attempt: float) -> ExportRun:
    stages = {Stage.TRACE: trace, Stage.COMPILE: compiling, Stage.VERIFY: 5.0}
    return ExportRun(
        command_s=attempt + 2,
        attempt_s=attempt,
        stages_s={"user": stages, "item": stages},
        code={},
        peak=Peak(),
    )


def test_what_is_made_warm_is_held_against_what_is_made_cold() -> None:
    rounds = [Round(cold=_run(2.0, 18.0, 50.0), warm=_run(0.0, 0.1, 10.0)) for _ in range(5)]
    figures = ModelFigures.of("demo", rounds)
    assert (figures.made.median, figures.attempt.median) == (0.005, 0.2)


def test_a_tenth_of_the_table_is_allowed_besides() -> None:
    run = _run(0.0, 0.0, 1.0).model_copy(update={"peak": Peak(anonymous=1_150_000_000)})
    assert TableRun.of(8_000_000_000, run, real=False).allowed_share == 0.5


def test_contenders_are_held_against_eager_of_the_same_tower_and_batch() -> None:
    times = tuple(
        Times(
            subject="user",
            size=8,
            values=1.0,
            contender=name,
            rounds=((speed,) * 9, (10 * speed,) * 9),
            work=((speed,), (speed,)),
        )
        for speed, name in enumerate(CONTENDERS, start=1)
    )
    figures = LatencyFigures(latencies=tuple(compare_to_eager(LatencyTimes(threads=1, times=times))))
    by_name = group_contenders(figures.latencies)["user", 1, 8]
    assert [by_name[name].p50_to_eager.values for name in CONTENDERS] == [
        (n, n) for n in (1.0, 2.0, 3.0, 4.0)
    ]
    assert by_name["eager"].rows_per_second.values == (8000.0, 800.0)
    assert latency_tables(figures)[0].rows[0][:3] == ("user", "1", "8")

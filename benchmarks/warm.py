"""Time jobs of new weights from POST to published; compare a warm export with a cold one, per stage.

The jobs go through the real API, Redis and an idle worker. Beside them stands the time in which torch alone
is imported. Then each round is one cold export and one warm export of the demo model, or of one with as many
layers as `--layers` says, each with new random weights. A cold export has an empty code cache, and no more of
the compiler's own files than an installation has.
"""

import argparse
import functools
import shutil
import sys
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars, draw_stacks
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, ratios
from benchmarks.measure.exports import ExportRun, Place, export, fresh_compiler
from benchmarks.measure.models import Model, demo_model
from benchmarks.measure.warm_jobs import WarmJob, measure_jobs
from exporter.spec import TowerName
from exporter.stages import Stage

MADE = (Stage.TRACE, Stage.COMPILE)  # packages are assembled in the stage that compiles
_LAYERS = 2  # of the demo model
_JOBS_PER_ROUND = 2
_AIM_WHOLE = 0.2
_AIM_PUBLISHED_S = 1.5
_REST = "starting"


class Round(BaseModel):
    """One cold and one warm export."""

    cold: ExportRun
    warm: ExportRun


class ModelFigures(BaseModel):
    """Figures of all rounds of one model."""

    model: str
    rounds: tuple[Round, ...]
    made: Spread  # trace, compile and package: ratio of warm to cold
    attempt: Spread  # the whole attempt
    command: Spread  # the whole command, including start-up that a worker does not repeat

    @classmethod
    def of(cls, model: str, rounds: Sequence[Round]) -> "ModelFigures":
        cold, warm = [each.cold for each in rounds], [each.warm for each in rounds]
        return cls(
            model=model,
            rounds=tuple(rounds),
            made=ratios([each.seconds(*MADE) for each in warm], [each.seconds(*MADE) for each in cold]),
            attempt=ratios([each.attempt_s for each in warm], [each.attempt_s for each in cold]),
            command=ratios([each.command_s for each in warm], [each.command_s for each in cold]),
        )


class JobFigures(BaseModel):
    """Seconds from the POST of jobs of new weights, by round, and ratios to importing torch."""

    running: Spread  # until a worker had it
    stage: Spread  # until a tower was in a stage
    published: Spread
    importing: Spread  # torch alone
    stage_ratio: Spread
    published_ratio: Spread

    @classmethod
    def of(cls, jobs: Sequence[WarmJob]) -> "JobFigures":
        stage, published = [each.stage_s for each in jobs], [each.published_s for each in jobs]
        importing = [each.importing_s for each in jobs]
        return cls(
            running=Spread.of(each.running_s for each in jobs),
            stage=Spread.of(stage),
            published=Spread.of(published),
            importing=Spread.of(importing),
            stage_ratio=ratios(stage, importing),
            published_ratio=ratios(published, importing),
        )


class WarmFigures(BaseModel):
    """Figures of jobs, and of exports of all models."""

    jobs: JobFigures
    models: tuple[ModelFigures, ...]


def main() -> int:
    parser = build_parser("warm", __doc__)
    parser.add_argument(
        "--layers", nargs="+", type=int, default=[_LAYERS], metavar="N", help="default: %(default)s"
    )
    return run_benchmark("warm", given := parser.parse_args(), functools.partial(measure, given=given))


def measure(run: Run, *, given: argparse.Namespace) -> Report:
    """Run all rounds of all models."""
    known = run.folder / "compiler"
    demo = demo_model(run.folder)
    jobs = JobFigures.of(_run_jobs(run, demo))
    run.say("one export to fill the compiler's own files")
    small = demo.spec(run.folder, seed=0).only((TowerName.ITEM,))
    export(small, Place(folder=run.folder, compiler=known))
    figures: list[ModelFigures] = []
    for layers in given.layers[:1] if run.quick else given.layers:
        model = demo_model(run.folder, layers=layers)
        try:
            rounds = [_run_round(run, model, number) for number in range(1 if run.quick else run.rounds)]
        except KeyboardInterrupt:
            if not figures:
                raise
            run.say("interrupted: the models that were measured by now are reported")
            break
        figures.append(ModelFigures.of(model.name, rounds))
    result = WarmFigures(jobs=jobs, models=tuple(figures))
    return Report(figures=result, tables=tables(result), draw=functools.partial(draw, result))


def _run_jobs(run: Run, model: Model) -> list[WarmJob]:
    found: list[WarmJob] = []
    for job in measure_jobs(model, run.folder, 2 if run.quick else _JOBS_PER_ROUND * run.rounds):
        run.say(
            f"a job of new weights: in a stage after {job.stage_s:.2f} s, published {job.published_s:.2f}"
        )
        found.append(job)
    return found


def _run_round(run: Run, model: Model, number: int) -> Round:
    cache = run.folder / "code"
    shutil.rmtree(cache, ignore_errors=True)
    made = []
    for which, seed in (("cold", 2 * number + 1), ("warm", 2 * number + 2)):
        compiler = fresh_compiler(run.folder / "compiler", run.folder / "compiler-now")
        place = Place(folder=run.folder, compiler=compiler, code_cache=cache)
        done = export(model.spec(run.folder, seed=seed), place)
        assert all(code.startswith(which) for code in done.code.values()), done.code
        run.say(f"{model.name}, round {number + 1}: {which} {done.attempt_s:.1f} s")
        made.append(done)
    return Round(cold=made[0], warm=made[1])


def tables(result: WarmFigures) -> tuple[Table, ...]:
    """Return tables of the jobs, of the ratios and of the seconds of each stage."""
    jobs = result.jobs
    spreads = (jobs.running, jobs.stage, jobs.published, jobs.importing, jobs.stage_ratio)
    posted = Table(
        title="A job of new weights, demo, both towers: seconds from its POST, and ratios to importing torch",
        columns=(
            *("a worker has it", "first stage", "published", "importing torch, alone"),
            *("first stage / importing", "published / importing"),
        ),
        rows=(tuple(each.text() for each in (*spreads, jobs.published_ratio)),),
    )
    summary = Table(
        title="Warm against cold: median of the rounds' ratios (lowest to highest)",
        columns=("model", "rounds", "trace, compile, package", "whole attempt", "whole command"),
        rows=tuple(
            (each.model, str(len(each.rounds)), each.made.text(2), each.attempt.text(), each.command.text())
            for each in result.models
        ),
    )
    return (posted, summary, *(_stage_table(each) for each in result.models))


def _stage_table(figures: ModelFigures) -> Table:
    cold = [each.cold for each in figures.rounds]
    warm = [each.warm for each in figures.rounds]
    stages = [stage for stage in Stage if any(each.seconds(stage) for each in cold)]
    parts = {
        stage.value: [[each.seconds(stage) for each in runs] for runs in (cold, warm)] for stage in stages
    }
    parts["attempt, from start to end"] = [[each.attempt_s for each in runs] for runs in (cold, warm)]
    return Table(
        title=f"{figures.model}: seconds of both towers together, per stage",
        columns=("stage", "cold", "warm"),
        rows=tuple((name, *(Spread.of(each).text() for each in both)) for name, both in parts.items()),
    )


def draw(result: WarmFigures, figure: Figure) -> None:
    """Plot the jobs on the left, seconds per stage of the slower tower in the middle, ratios on the right."""
    first, left, right = figure.subplots(1, 3)
    times = {"first stage": [result.jobs.stage], "published": [result.jobs.published]}
    titles = Titles(title="A job of new weights", y="seconds from its POST")
    draw_bars(first, ["demo"], times, titles, aim=_AIM_PUBLISHED_S)
    columns = {
        f"{each.model}\n{name}": _stack([getattr(one, name) for one in each.rounds])
        for each in result.models
        for name in ("cold", "warm")
    }
    draw_stacks(left, columns, Titles(title="Where an attempt's seconds go (slower tower)", y="seconds"))
    groups = [each.model for each in result.models]
    series = {
        "trace, compile, package": [each.made for each in result.models],
        "whole attempt": [each.attempt for each in result.models],
    }
    draw_bars(right, groups, series, Titles(title="Warm against cold", y="ratio"), aim=_AIM_WHOLE)


def _stack(runs: Sequence[ExportRun]) -> Mapping[str, float]:
    """Return seconds of the run with the median attempt: each stage of its slower tower, and the rest."""
    run = sorted(runs, key=lambda each: each.attempt_s)[len(runs) // 2]
    slower = max(run.stages_s.values(), key=lambda stages: sum(stages.values()))
    rest = max(0.0, run.attempt_s - sum(slower.values()))
    return {_REST: rest, **{stage.value: seconds for stage, seconds in slower.items()}}


if __name__ == "__main__":
    sys.exit(main())

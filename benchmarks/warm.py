"""Compare a warm export with a cold one, per stage, for the demo model and for one with eight layers.

Each round is one cold export and one warm export, each with new random weights. A cold export has an empty
code cache, and no more of the compiler's own files than an installation has.
"""

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
from exporter.spec import TowerName
from exporter.stages import Stage

MADE = (Stage.TRACE, Stage.COMPILE)  # packages are assembled in the stage that compiles
_LAYERS = (2, 8)
_AIM_WHOLE = 0.2
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


class WarmFigures(BaseModel):
    """Figures of all models."""

    models: tuple[ModelFigures, ...]


def main() -> int:
    return run_benchmark("warm", build_parser("warm", __doc__).parse_args(), measure)


def measure(run: Run) -> Report:
    """Run all rounds of all models."""
    known = run.folder / "compiler"
    demo = demo_model(run.folder)
    run.say("one export to fill the compiler's own files")
    small = demo.spec(run.folder, seed=0).only((TowerName.ITEM,))
    export(small, Place(folder=run.folder, compiler=known))
    figures: list[ModelFigures] = []
    for layers in _LAYERS[:1] if run.quick else _LAYERS:
        model = demo_model(run.folder, layers=layers)
        try:
            rounds = [_run_round(run, model, number) for number in range(1 if run.quick else run.rounds)]
        except KeyboardInterrupt:
            if not figures:
                raise
            run.say("interrupted: the models that were measured by now are reported")
            break
        figures.append(ModelFigures.of(model.name, rounds))
    result = WarmFigures(models=tuple(figures))
    return Report(figures=result, tables=tables(result), draw=functools.partial(draw, result))


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
    """Return tables of the ratios and of the seconds of each stage."""
    summary = Table(
        title="Warm against cold: median of the rounds' ratios (lowest to highest)",
        columns=("model", "rounds", "trace, compile, package", "whole attempt", "whole command"),
        rows=tuple(
            (each.model, str(len(each.rounds)), each.made.text(2), each.attempt.text(), each.command.text())
            for each in result.models
        ),
    )
    return (summary, *(_stage_table(each) for each in result.models))


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
    """Plot the seconds per stage of the slower tower on the left and the ratios on the right."""
    left, right = figure.subplots(1, 2)
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

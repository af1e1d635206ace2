"""Compare exporting two towers in two ranks at once with exporting them in one rank: demo model, cold.

Each round runs both, in alternating order, with new random weights. There is no code cache, and no more of
the compiler's own files than an installation has.
"""

import functools
import sys
from collections.abc import Sequence

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, ratios
from benchmarks.measure.exports import ExportRun, Place, export, fresh_compiler
from benchmarks.measure.models import Model, demo_model
from exporter.spec import TowerName

_RANKS = {"together": 2, "one after the other": 1}


class TowersFigures(BaseModel):
    """Figures of all rounds."""

    together: tuple[ExportRun, ...]
    apart: tuple[ExportRun, ...]
    attempt: Spread  # ratio of together to one after the other
    command: Spread

    @classmethod
    def of(cls, together: Sequence[ExportRun], apart: Sequence[ExportRun]) -> "TowersFigures":
        return cls(
            together=tuple(together),
            apart=tuple(apart),
            attempt=ratios([each.attempt_s for each in together], [each.attempt_s for each in apart]),
            command=ratios([each.command_s for each in together], [each.command_s for each in apart]),
        )


def main() -> int:
    return run_benchmark("towers", build_parser("towers", __doc__).parse_args(), measure)


def measure(run: Run) -> Report:
    """Run all rounds."""
    model = demo_model(run.folder)
    run.say("one export to fill the compiler's own files")
    small = model.spec(run.folder, seed=0).only((TowerName.ITEM,))
    export(small, Place(folder=run.folder, compiler=run.folder / "compiler"))
    done: dict[str, list[ExportRun]] = {name: [] for name in _RANKS}
    for number in range(1 if run.quick else run.rounds):
        for name in list(_RANKS)[:: 1 if number % 2 else -1]:
            done[name].append(_one(run, model, name, seed=number + 1))
    result = TowersFigures.of(*done.values())
    return Report(figures=result, tables=tables(result), draw=functools.partial(draw, result))


def _one(run: Run, model: Model, name: str, *, seed: int) -> ExportRun:
    compiler = fresh_compiler(run.folder / "compiler", run.folder / "compiler-now")
    spec = model.spec(run.folder, seed=seed).model_copy(update={"ranks": _RANKS[name]})
    done = export(spec, Place(folder=run.folder, compiler=compiler))
    run.say(f"round {seed}, {name}: {done.attempt_s:.1f} s")
    return done


def tables(result: TowersFigures) -> tuple[Table, ...]:
    """Return tables of the ratio and of the seconds."""
    both = (("together", result.together), ("one after the other", result.apart))
    return (
        Table(
            title="Two towers together against one after the other: median of the rounds' ratios "
            "(lowest to highest)",
            columns=("rounds", "whole attempt", "whole command"),
            rows=((str(len(result.apart)), result.attempt.text(), result.command.text()),),
        ),
        Table(
            title="Both, cold",
            columns=("", "seconds of the attempt"),
            rows=tuple((name, Spread.of(each.attempt_s for each in runs).text()) for name, runs in both),
        ),
    )


def draw(result: TowersFigures, figure: Figure) -> None:
    """Plot the seconds on the left and the ratio on the right."""
    left, right = figure.subplots(1, 2)
    seconds = {
        "together": [Spread.of(each.attempt_s for each in result.together)],
        "one after the other": [Spread.of(each.attempt_s for each in result.apart)],
    }
    draw_bars(left, ["demo"], seconds, Titles(title="Whole attempt, cold", y="seconds"))
    ratio = {"together / one after the other": [result.attempt]}
    draw_bars(right, ["demo"], ratio, Titles(title="Ratio", y="ratio"), aim=1.0)


if __name__ == "__main__":
    sys.exit(main())

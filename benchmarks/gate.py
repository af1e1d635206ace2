"""Compare the gate's seconds with those of compiling, for every family and for wide models; time it warm.

A family's tower is exported cold, once, with batches of up to 512 rows: of the compiler's own files there are
no more than an installation has, and there is no code cache. The demo's towers are exported warm as well.
"""

import functools
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.board.zoo import Case, read_zoo, spec_of
from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, format_number
from benchmarks.measure.exports import ExportRun, Place, export, fresh_compiler
from benchmarks.measure.models import Model, demo_model, ranking_model, retrieval_model, widen
from exporter.artifact.read import read_manifest
from exporter.manifest import VerificationReport
from exporter.spec import ExportSpec, Mode, TowerName
from exporter.stages import Stage

_ZOO = Path(__file__).parents[1] / "tests" / "board" / "zoo.json"
_WIDTHS = (64, 512)
_LARGEST_BATCH = 512
_AIM, _WARM_AIM_S = 0.3, 1.0
_SLOWEST = 3  # cases that are listed


class GateRun(BaseModel):
    """One tower's gate, beside the compile that it is held against; no compile where code was reused."""

    name: str
    tower: str
    gate_s: float
    compile_s: float | None
    seconds: dict[str, float]  # of each step of the gate
    cases: int
    slowest: dict[str, float]  # seconds of the slowest cases, by name

    @classmethod
    def of(
        cls, name: str, tower: str, stages: Mapping[Stage, float], report: VerificationReport, *, cold: bool
    ) -> "GateRun":
        """Return the figures of a tower from the seconds of its stages and the report of its gate."""
        ordered = sorted(report.cases, key=lambda case: -(case.seconds or 0.0))
        return cls(
            name=name,
            tower=tower,
            gate_s=stages[Stage.VERIFY],
            compile_s=stages[Stage.COMPILE] if cold else None,
            seconds=report.seconds,
            cases=len(report.cases),
            slowest={case.name: case.seconds or 0.0 for case in ordered[:_SLOWEST]},
        )

    @property
    def ratio(self) -> float:
        """Seconds of the gate for a second of compiling."""
        assert self.compile_s is not None
        return self.gate_s / self.compile_s


class GateFigures(BaseModel):
    """All runs: cold ones of families and wide models, and warm ones of the demo."""

    cold: tuple[GateRun, ...]
    warm: tuple[GateRun, ...]


def main() -> int:
    parser = build_parser("gate", __doc__)
    parser.add_argument(
        "--families", nargs="*", metavar="NAME", help="models of tests/board/zoo.json; default: all"
    )
    parser.add_argument("--without-widths", action="store_true", help="leave out the wide models")
    given = parser.parse_args()
    measured = functools.partial(measure, families=given.families, widths=not given.without_widths)
    return run_benchmark("gate", given, measured)


def measure(run: Run, *, families: Sequence[str] | None = None, widths: bool = True) -> Report:
    """Run the demo warm, then the wide models and the families; an interrupt ends with what there is."""
    demo = demo_model(run.folder)
    run.say("one export to fill the compiler's own files")
    small = demo.spec(run.folder, seed=0).only((TowerName.ITEM,))
    export(small, Place(folder=run.folder, compiler=run.folder / "compiler"))
    warm: list[GateRun] = []
    cold: list[GateRun] = []
    try:
        warm.extend(_run_demo(run, demo))
        for name, spec in _cold_specs(run, families, widths=widths):
            cold += _run_cold(run, name, spec)
    except KeyboardInterrupt:
        if not warm and not cold:
            raise
        run.say("interrupted: what was measured by now is reported")
    result = GateFigures(cold=tuple(cold), warm=tuple(warm))
    return Report(figures=result, tables=tables(result), draw=functools.partial(draw, result))


def _cold_specs(
    run: Run, families: Sequence[str] | None, *, widths: bool
) -> Iterator[tuple[str, ExportSpec]]:
    if widths:
        for model in (ranking_model(), retrieval_model()):
            for width in _WIDTHS[:1] if run.quick else _WIDTHS:
                wide = widen(model, width)
                yield wide.name, wide.spec(run.folder, seed=width)
    models = [each for each in read_zoo(_ZOO).models if families is None or each.name in families]
    for each in models[:1] if run.quick else models:
        case = Case(each.name, Mode.UNIFIED, "fp32")
        yield each.name, spec_of(each, case, _ZOO.parent, run.folder / "artifacts")


def _run_demo(run: Run, demo: Model) -> Iterator[GateRun]:
    """Export the demo cold once, to fill the code cache, and then warm, as often as there are rounds."""
    place = Place(folder=run.folder, compiler=run.folder / "compiler", code_cache=run.folder / "code")
    for number in range(1 + (1 if run.quick else run.rounds)):
        done, reports = _export(demo.spec(run.folder, seed=number + 1), place)
        for tower, report in reports.items():
            if number:
                measured = GateRun.of(demo.name, tower, done.stages_s[tower], report, cold=False)
                run.say(f"{demo.name}, {tower}, {done.code[tower]}: {measured.gate_s:.2f} s")
                yield measured


def _run_cold(run: Run, name: str, spec: ExportSpec) -> list[GateRun]:
    compiler = fresh_compiler(run.folder / "compiler", run.folder / "compiler-now")
    place = Place(folder=run.folder, compiler=compiler)
    done, reports = _export(spec.model_copy(update={"ranks": 1, "max_batch_size": _LARGEST_BATCH}), place)
    found = []
    for tower, report in reports.items():
        found.append(GateRun.of(name, tower, done.stages_s[tower], report, cold=True))
        run.say(f"{name}, {tower}: {found[-1].ratio:.2f} of {found[-1].compile_s:.1f} s")
    return found


def _export(spec: ExportSpec, place: Place) -> tuple[ExportRun, dict[str, VerificationReport]]:
    kept = place.folder / "kept"
    done = export(spec, place, keep=kept)
    towers = read_manifest(str(kept)).towers
    shutil.rmtree(kept)
    return done, {tower.name: tower.verified for tower in towers}


def tables(result: GateFigures) -> tuple[Table, ...]:
    """Return tables of the warm seconds, of the ratios, of the steps, and of the slowest cases."""
    steps = sorted({step for each in (*result.cold, *result.warm) for step in each.seconds})
    return (
        Table(
            title=f"The gate of the demo's towers, warm: seconds (lowest to highest); aim {_WARM_AIM_S:g}",
            columns=("tower", "rounds", "gate", *steps),
            rows=tuple(_warm_rows(result.warm, steps)),
        ),
        Table(
            title=f"The gate against compiling, cold, largest batch {_LARGEST_BATCH}; aim {_AIM:g}",
            columns=("model", "tower", "gate / compile", "compile, s", "gate, s", *steps, "cases"),
            rows=tuple(
                (
                    each.name,
                    each.tower,
                    format_number(each.ratio, 2),
                    format_number(each.compile_s or 0.0),
                    format_number(each.gate_s),
                    *(format_number(each.seconds.get(step, 0.0)) for step in steps),
                    str(each.cases),
                )
                for each in result.cold
            ),
        ),
        Table(
            title="The slowest cases, and their share of the gate",
            columns=("model", "tower", "cases"),
            rows=tuple((each.name, each.tower, _describe_slowest(each)) for each in result.cold),
        ),
    )


def _warm_rows(runs: Sequence[GateRun], steps: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for tower in dict.fromkeys(each.tower for each in runs):
        own = [each for each in runs if each.tower == tower]
        seconds = [[each.seconds.get(step, 0.0) for each in own] for step in steps]
        yield (
            tower,
            str(len(own)),
            Spread.of(each.gate_s for each in own).text(),
            *(format_number(Spread.of(each).median) for each in seconds),
        )


def _describe_slowest(run: GateRun) -> str:
    return ", ".join(f"{name} {seconds / run.gate_s:.0%}" for name, seconds in run.slowest.items())


def draw(result: GateFigures, figure: Figure) -> None:
    """Plot the ratio of each tower."""
    axes = figure.subplots()
    names = [f"{each.name}\n{each.tower}" for each in result.cold]
    ratios = {"gate / compile": [Spread.of([each.ratio]) for each in result.cold]}
    draw_bars(axes, names, ratios, Titles(title="The gate against compiling, cold", y="ratio"), aim=_AIM)
    axes.tick_params(axis="x", labelrotation=90, labelsize=6)


if __name__ == "__main__":
    sys.exit(main())

"""Measure a cold export and where its seconds go, beside torch.export and AOTInductor with their defaults.

Both run on one core. A fresh machine has nothing of a compiler's; on a machine that has exported others there
is whatever either side keeps, of another model. A fresh machine is measured in the first round only.
"""

import argparse
import functools
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.compiling.compiler_log import CompilerLog
from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars, draw_stacks
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, ratios
from benchmarks.measure.exports import Place, export
from benchmarks.measure.models import Model, ranking_model, retrieval_model, widen
from exporter.spec import ExportSpec, TowerName
from processes.settings import inherited_environment

Side = Literal["Slipway", "torch alone"]
Machine = Literal["fresh machine", "machine that has exported others"]
_SIDES: tuple[Side, ...] = ("Slipway", "torch alone")
_MACHINES: tuple[Machine, ...] = ("fresh machine", "machine that has exported others")
_FRESH_ROUNDS = 1
_WIDTH = 64
_MODELS = {
    "dlrm_hstu": (ranking_model, TowerName.MODEL),
    "hstu_match": (retrieval_model, TowerName.USER),
}
_PYTHON = "Python of the compiler"
_STARTING = "imports, starting and ending processes"


class Cold(BaseModel):
    """One export: its seconds, those of the processor, and the seconds of each step."""

    seconds: float
    cpu_s: float
    steps: Mapping[str, float]


class Figures(BaseModel):
    """All exports of one model on one kind of machine, by side and round."""

    model: str
    machine: Machine
    runs: Mapping[Side, tuple[Cold, ...]]

    @property
    def title(self) -> str:
        return f"{self.model}, {self.machine}"

    def ratio(self, field: Literal["seconds", "cpu_s"]) -> Spread:
        """Return Slipway's figure against that of torch alone."""
        ours, plain = ([getattr(each, field) for each in self.runs[side]] for side in _SIDES)
        return ratios(ours, plain)


class ColdFigures(BaseModel):
    """Figures of all models and machines."""

    measured: tuple[Figures, ...]


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """The folders and the compiler's log of one run of the benchmark."""

    run: Run
    log: CompilerLog

    def measure(self, side: Side, spec: ExportSpec, tower: TowerName, kept: Path) -> Cold:
        """Export one tower; what the compiler keeps is in the folder `kept`."""
        self.log.take_steps()
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        run = self._slipway if side == "Slipway" else self._torch_alone
        steps = dict(run(spec, tower, kept))
        seconds, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
        compiler = self.log.take_steps()
        steps[_PYTHON] = max(0.0, steps.pop("compile") - sum(compiler.values()))
        steps |= compiler
        steps[_STARTING] = max(0.0, seconds - sum(steps.values()))
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cold(seconds=seconds, cpu_s=cpu, steps=steps)

    def _slipway(self, spec: ExportSpec, tower: TowerName, kept: Path) -> Mapping[str, float]:
        place = Place(folder=self.run.folder, compiler=kept / "inductor", path=self.log.path)
        stages = export(spec.only((tower,)), place).stages_s[tower]
        return {stage.value: seconds for stage, seconds in stages.items()}

    def _torch_alone(self, spec: ExportSpec, tower: TowerName, kept: Path) -> Mapping[str, float]:
        request = self.run.folder / "plain.json"
        request.write_text(spec.model_dump_json(exclude_unset=True, exclude_none=True))
        own = {"TORCHINDUCTOR_CACHE_DIR": str(kept / "inductor"), "TMPDIR": str(kept), "PATH": self.log.path}
        work = self.run.folder / "plain"
        work.mkdir(exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "benchmarks.compiling.plain_export",
            str(request),
            tower.value,
            str(work),
        ]
        done = subprocess.run(
            command, env=inherited_environment(own), check=True, stdout=subprocess.PIPE, text=True
        )
        shutil.rmtree(work)
        steps: Mapping[str, float] = json.loads(done.stdout.splitlines()[-1])
        return steps


def main() -> int:
    parser = build_parser("cold", __doc__)
    parser.add_argument(
        "--models", nargs="+", choices=_MODELS, default=list(_MODELS)[:1], help="default: %(default)s"
    )
    given = parser.parse_args()
    return run_benchmark("cold", given, functools.partial(measure, given=given))


def measure(run: Run, *, given: argparse.Namespace) -> Report:
    """Run all rounds of the chosen models, each side in turn, on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    bench = _Bench(run=run, log=CompilerLog(run.folder / "tools"))
    models = {widen(make(), _WIDTH): tower for make, tower in (_MODELS[name] for name in given.models)}
    if run.quick:
        models = {retrieval_model(): TowerName.ITEM}
    known = _keep_of_another(bench, retrieval_model())
    figures = []
    for model, tower in models.items():
        rounds = [
            _run_round(bench, model, tower, known, each) for each in range(1 if run.quick else run.rounds)
        ]
        for machine in _MACHINES:
            runs = {
                side: tuple(each[machine, side] for each in rounds if (machine, side) in each)
                for side in _SIDES
            }
            figures.append(Figures(model=model.name, machine=machine, runs=runs))
    result = ColdFigures(measured=tuple(figures))
    return Report(figures=result, tables=tables(result), draw=functools.partial(draw, result))


def _keep_of_another(bench: _Bench, model: Model) -> Mapping[Side, Path]:
    """Export the item tower of `model` on both sides; return the folders of what each has kept then.

    On Slipway's side an installation has made headers ahead, as `make install` and the images do.
    """
    known: dict[Side, Path] = {}
    for side in _SIDES:
        known[side] = folder = bench.run.folder / f"known-{len(known)}"
        folder.mkdir()
        if side == "Slipway":
            command = [sys.executable, "-m", "worker.warm_up", "--folder", str(folder / "inductor")]
            # By the same compiler, to whose native options the headers belong.
            subprocess.run(command, check=True, env=inherited_environment({"PATH": bench.log.path}))
        bench.measure(side, model.spec(bench.run.folder, seed=0), TowerName.ITEM, folder)
    return known


def _run_round(
    bench: _Bench, model: Model, tower: TowerName, known: Mapping[Side, Path], number: int
) -> Mapping[tuple[Machine, Side], Cold]:
    spec, done = model.spec(bench.run.folder, seed=number + 1), {}
    for machine in _MACHINES[number >= _FRESH_ROUNDS :]:
        for side in _SIDES:
            kept = bench.run.folder / "kept"
            shutil.rmtree(kept, ignore_errors=True)
            if machine == "fresh machine":
                kept.mkdir()
            else:
                shutil.copytree(known[side], kept)
            cold = done[machine, side] = bench.measure(side, spec, tower, kept)
            bench.run.say(
                f"{model.name}, round {number + 1}, {machine}, {side}: "
                f"{cold.seconds:.1f} s, {cold.cpu_s:.1f} of the processor"
            )
    return done


def tables(result: ColdFigures) -> tuple[Table, ...]:
    """Return a table of ratios, and one of the seconds of each step for each model and machine."""
    summary = Table(
        title="Slipway, verified, against torch alone, not verified: median of the rounds' ratios",
        columns=("model and machine", "rounds", "wall time", "time of the processor"),
        rows=tuple(
            (
                each.title,
                str(len(each.runs["Slipway"])),
                each.ratio("seconds").text(),
                each.ratio("cpu_s").text(),
            )
            for each in result.measured
        ),
    )
    return (summary, *(_step_table(each) for each in result.measured))


def _step_table(figures: Figures) -> Table:
    steps = dict.fromkeys(step for runs in figures.runs.values() for cold in runs for step in cold.steps)
    rows = [(step, *(_spread(figures.runs[side], step) for side in _SIDES)) for step in steps]
    whole = ("whole", *(Spread.of(each.seconds for each in figures.runs[side]).text() for side in _SIDES))
    return Table(
        title=f"{figures.title}: seconds of each step", columns=("step", *_SIDES), rows=(*rows, whole)
    )


def _spread(runs: Sequence[Cold], step: str) -> str:
    return Spread.of(each.steps.get(step, 0.0) for each in runs).text()


def draw(result: ColdFigures, figure: Figure) -> None:
    """Plot the seconds per step on the left, and the ratios on the right."""
    left, right = figure.subplots(1, 2)
    columns = {}
    for each in result.measured:
        for side, runs in each.runs.items():
            middle = sorted(runs, key=lambda cold: cold.seconds)[len(runs) // 2]
            columns[f"{each.model}\n{each.machine.split()[0]}\n{side}"] = middle.steps
    draw_stacks(left, columns, Titles(title="Where the seconds go", y="seconds"))
    groups = [f"{each.model}\n{each.machine.split()[0]}" for each in result.measured]
    series = {
        "wall time": [each.ratio("seconds") for each in result.measured],
        "time of the processor": [each.ratio("cpu_s") for each in result.measured],
    }
    draw_bars(right, groups, series, Titles(title="Slipway against torch alone", y="ratio"))


if __name__ == "__main__":
    sys.exit(main())

"""Time that the release gate adds to a warm export: 100,000 held-out rows, beside a baseline.

Each round is a warm export with new weights, two verdicts on it, alone and beside the release before, and
the comparison with that release, which a job waits for too.
"""

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_bars
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import Spread, ratios
from benchmarks.measure.exports import Place, export
from benchmarks.measure.models import write_weights
from benchmarks.measure.small_world import RETRIEVER, World, ranker, write_rows
from exporter.comparison.compare import ComparisonRequest, compare_releases
from exporter.distributed.fork_server import ForkServer
from exporter.options.index_spec import FlatIndex
from exporter.options.release_gate import ReleaseGate
from exporter.pipeline.release import RUNS
from exporter.release.judge import judge_release
from exporter.reports.comparison import Comparison
from exporter.reports.release_report import REPORT_NAME, ReleasedArtifacts, ReleaseReport
from exporter.spec import ExportSpec, TowerName
from exporter.verify.runner_process import make_server

_ROWS, _QUICK_ROWS = 100_000, 2_000

_AIM_S = 5.0  # or a fifth of the export, where that is more


class Round(BaseModel):
    """One warm export and the verdicts on it."""

    attempt_s: float
    gate_s: float  # beside the release before
    alone_s: float  # without a baseline
    diff_s: float  # the comparison of the two releases
    rows: int


class ModelFigures(BaseModel):
    """Figures of all rounds of one model."""

    model: str
    rounds: tuple[Round, ...]
    gate: Spread  # seconds
    alone: Spread
    diff: Spread
    share: Spread  # verdict and comparison, of the attempt

    @classmethod
    def of(cls, model: str, rounds: Sequence[Round]) -> "ModelFigures":
        return cls(
            model=model,
            rounds=tuple(rounds),
            gate=Spread.of([each.gate_s for each in rounds]),
            alone=Spread.of([each.alone_s for each in rounds]),
            diff=Spread.of([each.diff_s for each in rounds]),
            share=ratios([each.gate_s + each.diff_s for each in rounds], [each.attempt_s for each in rounds]),
        )


class GateFigures(BaseModel):
    """Figures of all models."""

    models: tuple[ModelFigures, ...]


class Subject(BaseModel):
    """A model that is exported and judged again and again."""

    name: str
    config: str
    folder: Path
    held_out: str
    towers: tuple[TowerName, ...]
    items: str | None

    def spec(self, seed: int) -> ExportSpec:
        """Return an export with new weights."""
        checkpoint = self.folder / f"{self.name}-{seed}.safetensors"
        write_weights(self.config, checkpoint, seed=seed)
        wants_items = self.items is not None
        return ExportSpec(
            config=self.config,
            checkpoint_uri=str(checkpoint),
            item_input_uri=self.items,
            sample_input_uri=self.held_out,
            output_uri=str(self.folder / "artifacts"),
            materialise_items=wants_items,
            item_index=FlatIndex(kind="flat") if wants_items else None,
        )

    def released(self, seed: int) -> ReleasedArtifacts:
        return ReleasedArtifacts(
            job_id=f"{self.name}-{seed}", towers=dict.fromkeys(self.towers, str(self.artifact(seed)))
        )

    def artifact(self, seed: int) -> Path:
        return self.folder / f"{self.name}-{seed}"

    def judge(self, seed: int, baseline: int | None, server: ForkServer) -> ReleaseReport:
        """Judge the artifact of a seed, and leave the report beside it."""
        report = judge_release(
            self.released(seed),
            None if baseline is None else self.released(baseline),
            ReleaseGate(rows_uri=self.held_out, max_rows=_ROWS),
            config_text=self.config,
            scratch=self.folder,
            item_input_uri=self.items,
            server=server,
        )
        if report.failure:
            raise SystemExit(f"the release could not be judged: {report.failure}")
        (self.artifact(seed) / REPORT_NAME).write_text(report.model_dump_json())
        return report

    def compare(self, seed: int, baseline: int, server: ForkServer) -> Comparison:
        """Compare the artifacts of two seeds as a job does."""
        request = ComparisonRequest(runs=RUNS, server=server)
        return compare_releases(self.released(baseline), self.released(seed), request, scratch=self.folder)


def main() -> int:
    return run_benchmark("release_gate", build_parser("release_gate", __doc__).parse_args(), measure)


def measure(run: Run) -> Report:
    """Run all rounds of both models."""
    figures, count = [], 1 if run.quick else run.rounds
    with make_server() as server:  # as an attempt has one
        for subject in _subjects(run):
            rounds = [_run_round(run, subject, number, server) for number in range(1 + count)]
            figures.append(ModelFigures.of(subject.name, rounds[1:]))  # the first one was cold
    result = GateFigures(models=tuple(figures))
    return Report(figures=result, tables=(table(result),), draw=functools.partial(draw, result))


def _subjects(run: Run) -> Sequence[Subject]:
    world, rows = World.make(), _QUICK_ROWS if run.quick else _ROWS
    shown = write_rows(world.impressions(rows, seed=1), run.folder / "impressions.parquet")
    chosen = write_rows(world.choices(rows, seed=1), run.folder / "choices.parquet")
    items = write_rows(world.items(), run.folder / "items.parquet")
    ranking = Subject(
        name="ranking",
        config=ranker(),
        folder=run.folder,
        held_out=shown,
        towers=(TowerName.MODEL,),
        items=None,
    )
    retrieval = Subject(
        name="retrieval",
        config=RETRIEVER,
        folder=run.folder,
        held_out=chosen,
        towers=(TowerName.USER, TowerName.ITEM),
        items=items,
    )
    return ranking, retrieval


def _run_round(run: Run, subject: Subject, number: int, server: ForkServer) -> Round:
    place = Place(folder=run.folder, compiler=run.folder / "compiler", code_cache=run.folder / "code")
    done = export(subject.spec(number), place, keep=subject.artifact(number))
    assert number == 0 or all(code.startswith("warm") for code in done.code.values()), done.code
    alone = subject.judge(number, None, server)
    beside = subject.judge(number, number - 1, server) if number else alone
    diff_s = subject.compare(number, number - 1, server).seconds if number else 0.0
    run.say(
        f"{subject.name}, round {number}: {done.attempt_s:.1f} s, {beside.seconds:.1f} s for the gate, and "
        f"{diff_s:.1f} s for the comparison"
    )
    return Round(
        attempt_s=done.attempt_s,
        gate_s=beside.seconds,
        alone_s=alone.seconds,
        diff_s=diff_s,
        rows=beside.rows,
    )


def table(result: GateFigures) -> Table:
    """Return the seconds and the share of the export, model by model."""
    return Table(
        title="The release gate after a warm export: median of the rounds (lowest to highest)",
        columns=(
            "model",
            "rows",
            "warm attempt, s",
            "gate, s",
            "gate without a baseline, s",
            "comparison, s",
            "gate and comparison / attempt",
        ),
        rows=tuple(
            (
                each.model,
                f"{each.rounds[0].rows:,}",
                Spread.of([one.attempt_s for one in each.rounds]).text(),
                each.gate.text(),
                each.alone.text(),
                each.diff.text(),
                each.share.text(2),
            )
            for each in result.models
        ),
    )


def draw(result: GateFigures, figure: Figure) -> None:
    """Plot the seconds of the gate, with the aim."""
    groups = [each.model for each in result.models]
    series = {
        "beside a baseline": [each.gate for each in result.models],
        "alone": [each.alone for each in result.models],
    }
    titles = Titles(title="Seconds that the release gate adds to a warm export", y="seconds")
    draw_bars(figure.subplots(), groups, series, titles, aim=_AIM_S)


if __name__ == "__main__":
    sys.exit(main())

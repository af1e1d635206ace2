"""Make vectors and an index of a large catalogue in one job: `python -m benchmarks.items`.

The benchmark runs `slipway export` of an item tower over generated items, once over a tenth of them and once
over all, and reports the manifests' figures, the memory of the whole job, and the speed of the package alone.
"""

import argparse
import functools
import os
import shutil
import statistics
import sys
from pathlib import Path

from matplotlib.figure import Figure
from pydantic import BaseModel, TypeAdapter

from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.plots import Titles, draw_stacks
from benchmarks.harness.report import Report, Table
from benchmarks.harness.statistics import format_number
from benchmarks.measure.catalogue import write_checkpoint, write_config, write_items
from benchmarks.measure.exports import ExportRun, Place, export
from exporter.artifact.read import read_manifest
from exporter.data.rows import read_rows
from exporter.manifest import Manifest, VectorsEntry
from exporter.options.index_spec import INDEX_KINDS, IndexSpec
from exporter.serving.downloaded_tower import download_tower
from exporter.spec import ExportSpec, TowerName
from exporter.verify.runner import PackageRunner

_ITEMS, _QUICK = 10_000_000, 20_000
_REPEATS = 50
_INDEX: TypeAdapter[IndexSpec] = TypeAdapter(IndexSpec)


class ItemsRun(BaseModel):
    """One job over a number of items."""

    items: int
    export: ExportRun
    vectors: VectorsEntry
    artifact_bytes: int
    package_rows_per_second: float  # the package alone, on resident tensors, at the largest batch
    share_of_package_speed: float  # rows per second in the job, as a fraction of that


class ItemsFigures(BaseModel):
    """Figures of both runs, and the ratio of their memory."""

    cores: int
    max_batch_size: int
    runs: tuple[ItemsRun, ...]
    memory_of_vectors_ratio: float  # ratio of the larger run to the smaller one


def main() -> int:
    parser = build_parser("items", __doc__)
    parser.add_argument("--items", type=int, metavar="N", help="number of items; default: ten million")
    parser.add_argument("--index", default="ivf_flat", choices=INDEX_KINDS)
    parser.add_argument("--max-batch-size", type=int, default=8192, metavar="N")
    given = parser.parse_args()
    return run_benchmark("items", given, functools.partial(measure, given))


def measure(given: argparse.Namespace, run: Run) -> Report:
    """Run two jobs, to see how memory and time grow from one to the other."""
    items = given.items or (_QUICK if run.quick else _ITEMS)
    write_config(run.folder / "pipeline.config")
    write_checkpoint(run.folder / "pipeline.config", run.folder / "model.safetensors")
    index = _INDEX.validate_python({"kind": given.index})
    runs = tuple(_one(run, each, index, given.max_batch_size) for each in (items // 10, items))
    small, large = runs
    figures = ItemsFigures(
        cores=len(os.sched_getaffinity(0)),
        max_batch_size=given.max_batch_size,
        runs=runs,
        memory_of_vectors_ratio=large.vectors.peak_memory_bytes / small.vectors.peak_memory_bytes,
    )
    return Report(figures=figures, tables=tables(figures), draw=functools.partial(draw, figures))


def _one(run: Run, items: int, index: IndexSpec, max_batch_size: int) -> ItemsRun:
    """Export over this many items, and measure."""
    rows, artifact = run.folder / f"items-{items}.parquet", run.folder / f"artifact-{items}"
    write_items(rows, items)
    spec = ExportSpec(
        config_uri=(run.folder / "pipeline.config").as_uri(),
        checkpoint_uri=str(run.folder / "model.safetensors"),
        item_input_uri=str(rows),
        output_uri=str(run.folder / "artifacts"),
        towers=(TowerName.ITEM,),
        max_batch_size=max_batch_size,
        materialise_items=True,
        item_id_column="item_id",
        item_index=index,
    )
    done = export(
        spec, Place(folder=run.folder, compiler=run.folder / "compiler"), keep=artifact, watched=True
    )
    run.say(f"{items:,} items: {done.command_s:.0f} s")
    measured = _figures_of(read_manifest(str(artifact)), artifact, rows, done)
    shutil.rmtree(artifact)
    rows.unlink()
    return measured


def _figures_of(manifest: Manifest, artifact: Path, rows: Path, done: ExportRun) -> ItemsRun:
    (tower,) = manifest.towers
    assert tower.vectors is not None
    alone = _package_speed(manifest, artifact, rows)
    return ItemsRun(
        items=tower.vectors.rows,
        export=done,
        vectors=tower.vectors,
        artifact_bytes=sum(file.size for file in tower.all_files),
        package_rows_per_second=round(alone),
        share_of_package_speed=round(tower.vectors.rows_per_second / alone, 3),
    )


def _package_speed(manifest: Manifest, artifact: Path, rows: Path) -> float:
    """Return rows per second of the package alone: resident tensors, the largest batch, the same threads."""
    tower = download_tower(str(artifact), TowerName.ITEM, artifact.parent / "served")
    size = manifest.max_batch_size
    inputs = read_rows(str(rows), tower.features, limit=size).take(size).tensors(tower.plan)
    with PackageRunner(
        tower.chain,
        op_libraries=manifest.op_libraries,
        scratch=artifact.parent,
        threads=len(os.sched_getaffinity(0)),
    ) as runner:
        milliseconds = statistics.median(runner.ask(inputs, repeats=_REPEATS).times_ms)
    return size / (milliseconds / 1e3)


def tables(figures: ItemsFigures) -> tuple[Table, ...]:
    """Return a table with a row for each figure and a column for each run."""
    shown = {
        "rows per second, rows to parquet": [f"{each.vectors.rows_per_second:,.0f}" for each in figures.runs],
        "the same, against the package alone": [
            format_number(e.share_of_package_speed, 2) for e in figures.runs
        ],
        "memory of tower and package, GB": [
            format_number(each.vectors.peak_memory_bytes / 1e9) for each in figures.runs
        ],
        "whole job, seconds": [format_number(each.export.attempt_s) for each in figures.runs],
        "memory of the whole job, GB": [format_number(each.export.peak.whole / 1e9) for each in figures.runs],
    }
    indexes = [each.vectors.index for each in figures.runs]
    if all(index is not None for index in indexes):
        made = [index for index in indexes if index is not None]
        shown["seconds to build and measure the index"] = [format_number(index.seconds) for index in made]
        shown["memory of the index's process, GB"] = [format_number(i.peak_memory_bytes / 1e9) for i in made]
        shown["recall@10"] = [format_number(index.recall_at_10 or 0.0) for index in made]
    return (
        Table(
            title=f"Memory of tower and package, the larger against the smaller run: "
            f"{figures.memory_of_vectors_ratio:.2f}",
            columns=("figure", *(f"{each.items:,} items" for each in figures.runs)),
            rows=tuple((name, *values) for name, values in shown.items()),
        ),
    )


def draw(figures: ItemsFigures, figure: Figure) -> None:
    """Plot the seconds of each stage."""
    columns = {
        f"{each.items:,} items": {
            stage.value: seconds for stage, seconds in each.export.stages_s[TowerName.ITEM].items()
        }
        for each in figures.runs
    }
    draw_stacks(figure.subplots(), columns, Titles(title="Seconds per stage", y="seconds"))


if __name__ == "__main__":
    sys.exit(main())

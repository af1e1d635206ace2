"""Vectors and an index of a large catalogue, in one job: `python -m benchmarks.items`.

Runs `slipway export` of an item tower over made-up items, once over a tenth of them and once over all, and
writes what the manifests say, the memory of the whole job, and the package's own speed to compare with.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from benchmarks.catalogue import write_checkpoint, write_config, write_items
from benchmarks.process_memory import MemoryWatch
from exporter.data.batch import read_rows
from exporter.manifest import Manifest, TowerEntry, VectorsEntry
from exporter.predict import download
from exporter.publish import read_manifest
from exporter.spec import INDEX_KINDS, TowerName
from exporter.verify.runner import PackageRunner

_RESULTS = Path(__file__).parent / "results"
_REPEATS = 50


class ItemsRun(BaseModel):
    """One job over a number of items."""

    items: int
    job_seconds: float  # from command to published artifact
    stage_seconds: dict[str, float]
    vectors: VectorsEntry
    artifact_bytes: int
    job_peak_memory_bytes: int  # of all its processes at one moment
    package_rows_per_second: float  # alone, on resident tensors, at the largest batch
    share_of_package_speed: float  # rows per second in the job, against that


class ItemsBenchmark(BaseModel):
    """Both runs, on which machine, and what the tenfold number of items costs in memory."""

    cores: int
    max_batch_size: int
    runs: tuple[ItemsRun, ...]
    memory_of_vectors_ratio: float  # the larger run's to the smaller one's


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.items", description=__doc__)
    parser.add_argument("--items", type=int, default=10_000_000, metavar="N")
    parser.add_argument("--index", default="ivf_flat", choices=INDEX_KINDS)
    parser.add_argument("--max-batch-size", type=int, default=8192, metavar="N")
    parser.add_argument("--folder", type=Path, default=Path(".slipway/bench/items"), metavar="DIR")
    parser.add_argument("--results", type=Path, default=_RESULTS, metavar="DIR")
    given = parser.parse_args()
    folder: Path = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder / "pipeline.config")
    write_checkpoint(folder / "pipeline.config", folder / "model.safetensors")
    runs = tuple(
        run(folder, items, given.index, given.max_batch_size) for items in (given.items // 10, given.items)
    )
    small, large = runs
    result = ItemsBenchmark(
        cores=len(os.sched_getaffinity(0)),
        max_batch_size=given.max_batch_size,
        runs=runs,
        memory_of_vectors_ratio=large.vectors.peak_memory_bytes / small.vectors.peak_memory_bytes,
    )
    given.results.mkdir(parents=True, exist_ok=True)
    target = given.results / f"items-{given.items}-{given.index}.json"
    target.write_text(result.model_dump_json(indent=2) + "\n")
    sys.stdout.write(f"{target}\n")
    return 0


def run(folder: Path, items: int, index: str, max_batch_size: int) -> ItemsRun:
    """Export over so many items, and measure."""
    rows, output = folder / f"items-{items}.parquet", folder / f"artifacts-{time.time_ns()}"
    write_items(rows, items)
    spec = {
        "config_uri": (folder / "pipeline.config").as_uri(),
        "checkpoint_uri": str(folder / "model.safetensors"),
        "item_input_uri": str(rows),
        "output_uri": str(output),
        "towers": ["item"],
        "max_batch_size": max_batch_size,
        "materialise_items": True,
        "item_id_column": "item_id",
        "item_index": {"kind": index},
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, "-m", "cli.main", "export", "--spec", str(folder / "spec.json")]
    begun = time.monotonic()
    with subprocess.Popen(command) as job, MemoryWatch(job.pid) as watch:
        if job.wait() != 0:
            raise SystemExit("the export failed; see above")
    seconds = time.monotonic() - begun
    (artifact,) = output.iterdir()
    measured = _measured(read_manifest(str(artifact)), artifact, rows, seconds, watch.peak.whole)
    shutil.rmtree(output)
    return measured


def _measured(manifest: Manifest, artifact: Path, rows: Path, seconds: float, memory: int) -> ItemsRun:
    (tower,) = manifest.towers
    assert tower.vectors is not None
    alone = _package_speed(manifest, artifact, rows)
    return ItemsRun(
        items=tower.vectors.rows,
        job_seconds=round(seconds, 1),
        stage_seconds=_with_publishing(tower, seconds),
        vectors=tower.vectors,
        artifact_bytes=sum(file.size for file in tower.all_files),
        job_peak_memory_bytes=memory,
        package_rows_per_second=round(alone),
        share_of_package_speed=round(tower.vectors.rows_per_second / alone, 3),
    )


def _with_publishing(tower: TowerEntry, seconds: float) -> dict[str, float]:
    """The manifest is written before it is known how long its own publishing takes."""
    rest = seconds - sum(tower.stage_seconds.values())
    return {**tower.stage_seconds, "starting and publishing": round(rest, 1)}


def _package_speed(manifest: Manifest, artifact: Path, rows: Path) -> float:
    """Rows per second of the package alone: tensors in place, the largest batch, the same threads."""
    served = download(str(artifact), TowerName.ITEM, artifact.parent / "served")
    size = manifest.max_batch_size
    inputs = read_rows(str(rows), served.features, limit=size).take(size).tensors(served.plan)
    with PackageRunner(
        served.chain,
        op_libraries=manifest.op_libraries,
        scratch=artifact.parent,
        threads=len(os.sched_getaffinity(0)),
    ) as runner:
        _, milliseconds = runner.time(inputs, repeats=_REPEATS)
    assert milliseconds is not None
    return size / (milliseconds / 1e3)


if __name__ == "__main__":
    sys.exit(main())

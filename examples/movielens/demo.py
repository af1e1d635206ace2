"""The demo on real data: train, export over HTTP, and measure the downloaded packages.

`python -m examples.movielens.demo` (or `make demo`) starts Redis, the API and a worker, trains a small
two-tower model on MovieLens-100K, posts its export as any client would, and recommends films with the
resulting packages.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Column, Table

from cli.main import main as slipway
from examples.movielens.download import DownloadFailed, download
from examples.movielens.prepare import prepare
from examples.movielens.recall import embedding_scores, popularity_scores, recall_at
from examples.movielens.train import Recipe, Trained, train
from exporter.artifact.read import read_manifest
from exporter.errors import ExportError
from exporter.manifest import Manifest, TowerEntry
from exporter.spec import ExportSpec, TowerName
from exporter.storage.store import join_uri
from jobs.model import JobState
from launcher.settings import LauncherSettings
from launcher.up import running_stack
from service.client.watch import display, show_end, watch
from slipway.client import Client, SlipwayError

_TOP = 10
_OUTPUT = {TowerName.USER: "user_tower_emb", TowerName.ITEM: "item_tower_emb"}


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Share of the held-out films that are among the ten recommended ones."""

    packages: float
    eager: float  # the trained model itself, before any export
    popularity: float


def run(folder: Path, steps: int, console: Console) -> int:
    """Run all steps of the demo and return the exit code."""
    settings = LauncherSettings()
    with running_stack(folder / "stack", redis_url=settings.redis_url) as stack:
        console.print(f"[bold]service[/bold] {stack.url} (API docs at {stack.url}/docs)")
        data = folder / "data"
        prepare(download(folder), data)
        console.print(f"[bold]data[/bold] MovieLens-100K in {data}")
        trained = train(data, Recipe(steps=steps))
        console.print(f"[bold]trained[/bold] {trained.checkpoint} in {trained.seconds:.0f} s")
        manifest_uri = export(stack.url, data, trained, folder)
    if manifest_uri is None:
        return 1
    artifact = manifest_uri.rpartition("/")[0]
    recall = measure(artifact, data, folder / "predictions" / artifact.rpartition("/")[2], trained)
    console.print(result(artifact, read_manifest(artifact), recall))
    return 0


def export(url: str, data: Path, trained: Trained, folder: Path) -> str | None:
    """Post the export, follow it, and return the manifest's URI; None if it did not succeed."""
    client = Client(url)
    job = client.submit(
        ExportSpec(
            config_uri=str(trained.config),
            checkpoint_uri=str(trained.checkpoint),
            item_input_uri=str(data / "items.parquet"),
            sample_input_uri=str(data / "train.parquet"),
            output_uri=str(folder / "artifacts"),
        )
    )
    with display(sys.stdout) as show:
        job = watch(client, job.id, show)
    show_end(job)
    return job.manifest_uri if job.state is JobState.SUCCEEDED else None


def measure(artifact: str, data: Path, scratch: Path, trained: Trained) -> Recall:
    """Recommend films with the packages, downloaded and run as by `slipway predict`."""
    users = predict(artifact, TowerName.USER, data / "heldout.parquet", scratch)
    items = predict(artifact, TowerName.ITEM, data / "items.parquet", scratch)
    catalogue = pq.read_table(data / "items.parquet").to_pydict()
    heldout = pq.read_table(data / "heldout.parquet").to_pydict()
    targets = [candidates[0] for candidates in heldout["cand_seq__item_id"]]
    packages, popularity = (
        recall_at(_TOP, scores, catalogue["item_id"], targets, heldout["seen"])
        for scores in (embedding_scores(users, items), popularity_scores(len(users), catalogue["ratings"]))
    )
    return Recall(packages=packages, eager=trained.recall, popularity=popularity)


def predict(artifact: str, tower: TowerName, rows: Path, scratch: Path) -> NDArray[np.float32]:
    """Return one embedding per row."""
    scratch.mkdir(parents=True, exist_ok=True)
    output = scratch / f"{tower}.parquet"
    command = [
        "predict",
        "--artifact",
        artifact,
        "--tower",
        tower,
        "--input",
        str(rows),
        "--output",
        str(output),
    ]
    if slipway(command):
        raise SystemExit(f"slipway {' '.join(command)} failed")
    return np.array(pq.read_table(output)[_OUTPUT[tower]].to_pylist(), dtype=np.float32)


def result(artifact: str, manifest: Manifest, recall: Recall) -> Table:
    """Return the final table: the published packages, and their recall."""
    table = Table(
        "tower",
        Column("package", overflow="fold"),  # the URI must stay complete for copying
        "size",
        "largest difference\nfrom eager",
        "latency eager → compiled",
        f"recall@{_TOP}",
        title="published and verified",
        title_justify="left",
        caption=f"recall@{_TOP} on held-out users: packages {recall.packages:.4f}, trained model "
        f"{recall.eager:.4f}, most popular films {recall.popularity:.4f}",
        caption_justify="left",
    )
    for tower in manifest.towers:
        table.add_row(
            tower.name,
            join_uri(artifact, tower.package.path),
            f"{tower.package.size / 1e6:.2f} MB",
            f"{tower.verified.largest_difference:.1e}",
            _latency(tower),
            f"{recall.packages:.4f}",
        )
    table.add_row("—", "popularity baseline", "", "", "", f"{recall.popularity:.4f}")
    return table


def _latency(tower: TowerEntry) -> str:
    return "; ".join(
        f"{timed.eager_ms:.2f} → {timed.compiled_ms:.2f} ms (batch {timed.batch})"
        for timed in tower.verified.latency
    )


def main() -> int:
    """Run the demo; print an error as one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(".slipway/demo"), help="default: %(default)s")
    parser.add_argument(
        "--steps", type=int, default=Recipe.steps, help="training steps; default: %(default)s"
    )
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    try:
        return run(arguments.data.absolute(), arguments.steps, console)
    except (DownloadFailed, ExportError, SlipwayError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

"""Sources of an export: its config, checkpoint and rows, each fetched once per attempt, with its digest."""

import fcntl
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from exporter.checkpoint.read import Checkpoint, fetch_checkpoint, open_checkpoint
from exporter.checkpoint.tensors import hash_file
from exporter.config.features.tables import dynamic_tables
from exporter.config.schema import PipelineConfig
from exporter.data.parquet import open_parquet
from exporter.data.rows import Rows, read_rows
from exporter.manifest import SourceRef
from exporter.spec import ExportSpec
from exporter.towers.plan import PlannedTower


def config_source(uri: str | None, text: str) -> SourceRef:
    """Return the URI and digest of a config for the manifest; "inline" if it came with the request."""
    return SourceRef(role="config", uri=uri or "inline", sha256=hashlib.sha256(text.encode()).hexdigest())


def open_rows(planned: PlannedTower, spec: ExportSpec) -> tuple[Rows, SourceRef]:
    """Read rows for a tower: of items from `item_input_uri`, others from the sample input."""
    tower = planned.config
    role: Literal["item_input", "sample_input"]
    if tower.name.reads_items:
        role, uri = "item_input", spec.item_input_uri
    else:
        role = "sample_input"
        uri = spec.sample_input_uri or tower.pipeline.train_input_path
    assert uri is not None  # plan_export refuses a spec without it
    rows = read_rows(uri, tower.pipeline.features)
    # Where vectors of all items are wanted, all files are going to be read.
    sha256 = rows.sha256 if planned.item_id_column is None else open_parquet(uri).sha256()
    return rows, SourceRef(role=role, uri=rows.uri, sha256=sha256)


def fetch_checkpoint_once(
    spec: ExportSpec, workspace: Path, pipeline: PipelineConfig
) -> tuple[Checkpoint, SourceRef]:
    """Open the attempt's checkpoint; the first rank to come fetches it for all.

    Its dense weights are the averages that training kept beside them, if the config wants these. Tables of
    dynamicemb that `pipeline` names are part of it. Each of its files is hashed by one rank.
    """
    folder = workspace / "checkpoint"
    folder.mkdir(exist_ok=True)
    averaged = pipeline.averaged_weights
    dynamic = {path: (table.dim, table.unknown) for path, table in dynamic_tables(pipeline).items()}
    fetch = partial(
        fetch_checkpoint,
        spec.checkpoint_uri,
        folder / "files",
        averaged=averaged,
        dynamic_tables=True,  # the attempt's other towers may have some
    )
    path = Path(_once(folder / "path", lambda: str(fetch())))
    checkpoint = open_checkpoint(path, averaged=averaged, dynamic_tables=dynamic)
    digest = checkpoint.digest(partial(_hash_together, folder))
    return checkpoint, SourceRef(role="checkpoint", uri=spec.checkpoint_uri, sha256=digest)


def _hash_together(folder: Path, paths: Sequence[Path]) -> list[str]:
    """Hash the files that no other rank is hashing, then wait for the others; return the sha256 of each."""
    results = [folder / f"{hashlib.sha256(str(path).encode()).hexdigest()}.sha256" for path in paths]
    for path, result in zip(paths, results, strict=True):
        _once(result, partial(hash_file, path), wait=False)
    return [_once(result, partial(hash_file, path)) for path, result in zip(paths, results, strict=True)]


def _once(result: Path, produce: Callable[[], str], *, wait: bool = True) -> str:
    """Run `produce` in one rank only; the others wait and read its result, or return "" if not to wait."""
    with result.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return ""
        if not result.exists():
            partly = result.with_suffix(".partial")  # a rank may be killed as it writes
            partly.write_text(produce())
            partly.rename(result)
        return result.read_text()

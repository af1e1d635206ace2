"""Releases with other weights, item vectors or bytes: copies of an exported one, assembled anew."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.measure.small_world import State, item_vectors
from exporter.artifact.read import file_ref
from exporter.items.index import IndexRequest, build_index
from exporter.items.vector_files import VectorsWriter
from exporter.options.index_spec import FlatIndex
from exporter.options.release_gate import ReleaseGate
from exporter.release.judge import judge_release
from exporter.reports.release_report import REPORT_NAME, ReleasedArtifacts, ReleaseReport
from exporter.spec import TowerName
from tests.exporter.comparison.altered import altered_copy, read

Edit = Callable[[dict[str, Tensor]], object]
Vectors = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An artifact that was exported and verified, with the weights and the config behind it."""

    artifact: Path
    state: State
    config: str

    @property
    def towers(self) -> tuple[TowerName, ...]:
        return tuple(entry.name for entry in read(self.artifact).towers)


def publish(exported: Exported, into: Path, state: State, edit: Edit | None = None) -> Path:
    """Publish the exported packages with other weights, edited or not; a retriever also with its items."""

    def take(weights: dict[str, Tensor]) -> None:
        for name in weights:
            weights[name].copy_(state[name])
        if edit is not None:
            edit(weights)

    altered_copy(exported.artifact, into, take, job_id=into.name)
    if TowerName.ITEM in exported.towers:
        edited = {name: value.clone() for name, value in state.items()}
        if edit is not None:
            edit(edited)
        write_items(into, item_vectors(edited))
    return into


def write_items(artifact: Path, vectors: Vectors, ids: NDArray[np.int64] | None = None) -> None:
    """Publish item vectors, and a flat index over them, in place of the artifact's own."""
    manifest = read(artifact)
    [entry] = [tower for tower in manifest.towers if tower.name is TowerName.ITEM]
    published = entry.vectors
    assert published is not None and published.index is not None
    folder, index = artifact / "item" / "vectors", artifact / published.index.file.path
    named = np.arange(len(vectors)) if ids is None else ids
    with VectorsWriter(folder, published.id_column, pa.int64(), width=vectors.shape[1]) as writer:
        writer.write(pa.array(named), vectors)
    request = IndexRequest(
        parts=tuple(writer.parts),
        rows=len(vectors),
        width=vectors.shape[1],
        index=FlatIndex(),
        metric=published.index.metric,
        labels=published.index.labels,
        output=index,
        threads=1,
    )
    build_index(request, lambda _fraction, _detail: None)
    changed = published.model_copy(
        update={
            "rows": len(vectors),
            "files": tuple(file_ref(file.path, artifact / file.path) for file in published.files),
            "index": published.index.model_copy(update={"file": file_ref(published.index.file.path, index)}),
        }
    )
    towers = tuple(
        tower.model_copy(update={"vectors": changed}) if tower is entry else tower
        for tower in manifest.towers
    )
    manifest = manifest.model_copy(update={"towers": towers})
    (artifact / "manifest.json").write_text(manifest.model_dump_json())


def add_ballast(artifact: Path) -> None:
    """Make each package twice as large, by a file that nothing reads."""
    manifest = read(artifact)
    towers = []
    for entry in manifest.towers:
        path = artifact / entry.package.path
        with zipfile.ZipFile(path, "a") as package:
            package.writestr(f"{path.stem}/extra/ballast", bytes(path.stat().st_size))
        towers.append(entry.model_copy(update={"package": file_ref(entry.package.path, path)}))
    manifest = manifest.model_copy(update={"towers": tuple(towers)})
    (artifact / "manifest.json").write_text(manifest.model_dump_json())


def judge(
    artifact: Path, baseline: Path | None, rows: str, exported: Exported, scratch: Path
) -> ReleaseReport:
    """Judge an artifact beside a baseline, and leave the report where the next release looks for it."""
    report = judge_release(
        _released(artifact),
        None if baseline is None else _released(baseline),
        ReleaseGate(rows_uri=rows),
        config_text=exported.config,
        scratch=scratch,
    )
    (artifact / REPORT_NAME).write_text(report.model_dump_json())
    return report


def _released(artifact: Path) -> ReleasedArtifacts:
    towers = {entry.name: str(artifact) for entry in read(artifact).towers}
    return ReleasedArtifacts(job_id=artifact.name, towers=towers)

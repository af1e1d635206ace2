"""The manifest of an artifact, the entries of its towers, and the files beside their packages."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from exporter.aoti.architecture import architecture
from exporter.aoti.compile import versions
from exporter.artifact.read import file_ref
from exporter.attempt.attempt import Attempt, ExportedTower
from exporter.config.declared_model import DeclaredConfig
from exporter.config.features.tables import remark_on_rounding
from exporter.declaration import TowerDeclaration
from exporter.dims.entries import dim_entries, tensor_entries, tried_between
from exporter.families.loading import family_package
from exporter.manifest import (
    DimEntry,
    FileRef,
    Manifest,
    SourceRef,
    SparseEntry,
    TowerEntry,
    VectorsEntry,
)
from exporter.packages.package_tower import Packaged
from exporter.packages.parts import CompiledPart
from exporter.packages.scripted_part import WrittenPart
from exporter.pipeline.open_tower import OpenedTower
from exporter.samples.entry import SamplesEntry
from exporter.spec import IdWeights, TowerName
from exporter.towers.plan import TowerToExport, UnopenedTower
from exporter.towers.tower import Tower


def write_tower_files(
    tower: TowerName,
    contents: Mapping[str, bytes],
    packages: Sequence[WrittenPart | CompiledPart],
    folder: Path,
) -> dict[str, Path]:
    """Write the files that go beside the package, by file name.

    Returns every file of the tower, packages included: the local file by its path in the artifact.
    """
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    paths = [*(each.part.path for each in packages), *contents]
    return {f"{tower}/{path}": folder / path for path in paths}


def make_tower_entry(
    opened: OpenedTower,
    packaged: Packaged,
    files: Mapping[str, Path],
    stage_seconds: Mapping[str, float],
    *,
    remarks: Sequence[str] = (),
    samples: SamplesEntry | None = None,
    vectors: VectorsEntry | None = None,
) -> TowerEntry:
    """Make the tower's entry; it needs the verification report, which only verified packages have."""
    tower, rows = opened.tower, opened.rows
    last = packaged.parts[-1]
    *sparse, package = (_package_ref(tower, each) for each in packaged.written)
    written = {package.path, *(each.path for each in sparse)}
    dims = dim_entries(tower.plan, packaged.tried)
    others = tuple(file_ref(path, local) for path, local in files.items() if path not in written)
    return TowerEntry(
        name=tower.name,
        view=tower.config.view,
        package=package,
        sparse=_sparse_entry(sparse[0], packaged, dims) if sparse else None,
        files=others,
        inputs=tensor_entries(tower.plan),
        outputs=last.code.outputs,
        dims=dims,
        declaration=_declaration(tower),
        id_weights=_id_weights(tower),
        remarks=(*tower.served.remarks(), *_rounding(tower), *remarks),
        inferred_ops=opened.inferred_ops,
        embeddings=opened.lowered.tables,
        precision=tower.config.options.precision,
        tf32=tower.config.options.tf32,
        kernel=tower.config.options.kernel,
        demands=tower.served.demands(rows.take(1).tensors(tower.plan)),
        code=packaged.origin.code,
        reused=packaged.origin.reused,
        code_note=packaged.origin.note,
        passes=tuple(applied for part in packaged.parts for applied in part.passes),
        verified=packaged.report,
        samples=samples,
        vectors=vectors,
        stage_seconds=dict(stage_seconds),
        trace=packaged.trace,
    )


def _package_ref(tower: Tower, written: WrittenPart | CompiledPart) -> FileRef:
    path, file = f"{tower.name}/{written.part.path}", written.package
    return FileRef(path=path, size=file.size, sha256=file.sha256)


def _declaration(tower: Tower) -> TowerDeclaration | None:
    model = tower.config.pipeline.model
    return model.declaration if isinstance(model, DeclaredConfig) else None


def _rounding(tower: Tower) -> tuple[str, ...]:
    return () if tower.is_declared else remark_on_rounding(tower.config.pipeline)


def _id_weights(tower: Tower) -> IdWeights | None:
    pipeline = tower.config.pipeline
    pooled = [group for group in pipeline.groups if group.kind.is_row_vector]
    weighted = any(pipeline.feature(name).weighted for group in pooled for name in group.features)
    return tower.config.options.id_weights if weighted else None


def _sparse_entry(package: FileRef, packaged: Packaged, dims: Sequence[DimEntry]) -> SparseEntry:
    plan, kind = packaged.parts[-1].part.tower.plan, packaged.runnable.chain[0].kind
    between = dim_entries(plan, tried_between(dims))
    return SparseEntry(package=package, kind=kind, tensors=tensor_entries(plan), dims=between)


def make_manifest(exported: Sequence[ExportedTower], planned: TowerToExport, attempt: Attempt) -> Manifest:
    """Make the manifest of the towers that passed the gate."""
    spec = attempt.spec
    return Manifest(
        job_id=attempt.job_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        family=planned.family,
        family_package=family_package(planned.family) if isinstance(planned, UnopenedTower) else None,
        mode=spec.mode,
        layout=spec.layout,
        device=spec.device,
        architecture=architecture(spec.device, spec.targets[0]),
        max_batch_size=spec.max_batch_size,
        versions=versions(),
        op_libraries=tuple(sorted({library for tower in exported for library in tower.op_libraries})),
        sources=_without_repetitions(source for tower in exported for source in tower.sources),
        towers=tuple(tower.entry for tower in exported),
    )


def _without_repetitions(sources: Iterable[SourceRef]) -> tuple[SourceRef, ...]:
    return tuple(dict.fromkeys(sources))

"""What a manifest and the files beside a package say about an exported tower."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from torch import SymInt
from torch.export import ExportedProgram

from exporter.aoti.architecture import architecture
from exporter.aoti.compile import versions
from exporter.attempt import Attempt, ExportedTower
from exporter.config.render import render_fg_json, render_model_acc, render_pipeline_config
from exporter.config.schema import GroupKind
from exporter.dims.entries import dim_entries, tensor_entries
from exporter.dims.plan import DimPlan
from exporter.dims.torch_dims import check_program
from exporter.manifest import (
    FileRef,
    Manifest,
    SourceRef,
    SparseEntry,
    TensorEntry,
    TowerEntry,
    VerificationReport,
)
from exporter.parts import CompiledPart
from exporter.planning import PlannedTower
from exporter.publish import file_ref
from exporter.spec import ExportSpec, IdWeights
from exporter.towers.tower import Tower


def write_tower_files(
    planned: PlannedTower, compiled: Sequence[CompiledPart], spec: ExportSpec, folder: Path
) -> dict[str, Path]:
    """Write what TorchEasyRec's servers read beside the package, for the tower's view.

    Returns every file of the tower, packages included: its path in the artifact, and where it is now.
    """
    texts = {
        "pipeline.config": render_pipeline_config(planned.config),
        "fg.json": render_fg_json(planned.config),
        "model_acc.json": render_model_acc(
            planned.config, mode=spec.mode, max_batch_size=spec.max_batch_size
        ),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    paths = [part.part.path for part in compiled] + list(texts)
    return {f"{planned.config.name}/{path}": folder / path for path in paths}


def tower_entry(
    tower: Tower,
    compiled: Sequence[CompiledPart],
    files: Mapping[str, Path],
    verified: VerificationReport,
    stage_seconds: Mapping[str, float],
    *,
    demands: tuple[str, ...],
) -> TowerEntry:
    """The tower's entry; asking for the verification report is what keeps the unverified out."""
    refs = {path: file_ref(path, local) for path, local in files.items()}
    *sparse, last = compiled
    packages = [refs.pop(f"{tower.name}/{part.part.path}") for part in compiled]
    return TowerEntry(
        name=tower.name,
        view=tower.config.view,
        package=packages[-1],
        sparse=_sparse_entry(packages[0], last.part.tower.plan) if sparse else None,
        files=tuple(refs.values()),
        inputs=tensor_entries(tower.plan),
        outputs=output_entries(last.program, last.part.tower.plan),
        dims=dim_entries(tower.plan),
        id_weights=_id_weights(tower),
        demands=demands,
        verified=verified,
        stage_seconds=dict(stage_seconds),
    )


def _id_weights(tower: Tower) -> IdWeights | None:
    pipeline = tower.config.pipeline
    deep = [group for group in pipeline.groups if group.kind is GroupKind.DEEP]
    weighted = any(pipeline.feature(name).weighted for group in deep for name in group.features)
    return pipeline.id_weights if weighted else None


def _sparse_entry(package: FileRef, plan: DimPlan) -> SparseEntry:
    return SparseEntry(package=package, tensors=tensor_entries(plan), dims=dim_entries(plan))


def output_entries(program: ExportedProgram, plan: DimPlan) -> tuple[TensorEntry, ...]:
    """The program's outputs; a size that is a planned dim goes by the dim's name."""
    dims = {symbol: dim for dim, symbol in check_program(program, plan).items()}
    names = list(program.call_spec.out_spec.context)
    nodes = {node.name: node for node in program.graph.nodes}
    values = [nodes[str(name)].meta["val"] for name in program.graph_signature.user_outputs]
    return tuple(
        TensorEntry(
            name=name,
            dtype=str(value.dtype).removeprefix("torch."),
            shape=tuple(
                dims.get(str(size), str(size)) if isinstance(size, SymInt) else size for size in value.shape
            ),
        )
        for name, value in zip(names, values, strict=True)
    )


def manifest_of(exported: Sequence[ExportedTower], planned: PlannedTower, attempt: Attempt) -> Manifest:
    """The manifest of the towers that passed the gate."""
    spec = attempt.spec
    return Manifest(
        job_id=attempt.job_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        family=planned.config.pipeline.model.family,
        mode=spec.mode,
        device=spec.device,
        architecture=architecture(spec.device, spec.targets[0]),
        max_batch_size=spec.max_batch_size,
        versions=versions(),
        op_libraries=tuple(sorted({library for tower in exported for library in tower.op_libraries})),
        sources=_distinct(source for tower in exported for source in tower.sources),
        towers=tuple(tower.entry for tower in exported),
    )


def _distinct(sources: Iterable[SourceRef]) -> tuple[SourceRef, ...]:
    return tuple(dict.fromkeys(sources))

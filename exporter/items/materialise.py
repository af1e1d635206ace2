"""Materialise the vectors of all items by the verified package, check a sample, and build an index."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from exporter.artifact.read import file_ref
from exporter.errors import IndexFailed, VerificationFailed
from exporter.items.ids import ids_of
from exporter.items.index import IndexRequest, build_index
from exporter.items.peak_memory import peak_bytes, reset_peak
from exporter.items.plan import VectorsPlan
from exporter.items.read_back import ComputedItems
from exporter.items.sample import sample_places
from exporter.items.stream import WrittenVectors, encode_calls, write_vectors
from exporter.items.vector_files import read_rows
from exporter.manifest import VECTOR_COLUMN, FileRef, IndexEntry, VectorsEntry
from exporter.spec import TowerName
from exporter.stages import Progress
from exporter.verify.numerics import Difference, compare
from exporter.verify.runnable_tower import RunnableTower

_CHECKED = 8192  # rows that are compared with eager: all of them, where there are no more
_SEED = 20260901
_VECTORS, _CHECK = 0.35, 0.05  # fractions of the stage, roughly, if an index is built


@dataclass(frozen=True, kw_only=True)
class MaterialisedVectors:
    """The manifest entry of the vectors, and its files by their paths in the artifact."""

    entry: VectorsEntry
    files: dict[str, Path]


def materialise_items(
    plan: VectorsPlan, runnable: RunnableTower, folder: Path, progress: Progress
) -> MaterialisedVectors:
    """Write the vectors of all items below `folder`, compare a sample with eager, and build the index.

    Raises:
        InvalidRows: a row cannot be encoded.
        VerificationFailed: a vector is not as it was computed, or differs from eager's by more than the
            tolerance.
        IndexFailed: FAISS could not build the index.
    """
    reset_peak()
    (folder / "vectors").mkdir()
    share = _VECTORS if plan.index else 1 - _CHECK
    tower = runnable.tower.name
    rows = plan.items.ids.rows
    sample = np.union1d(sample_places(rows, _CHECKED, seed=_SEED), [0, rows - 1])
    computed = ComputedItems(folder / "computed_items")
    written = write_vectors(
        plan,
        runnable.make_runner(),
        folder / "vectors",
        sample,
        computed,
        _scale_progress(progress, begin=0.0, end=share),
    )
    files = {_artifact_path(tower, path, folder): path for path in written.parts}
    refs = tuple(file_ref(path, local) for path, local in files.items())  # of what is read back below
    progress(share, f"vectors: all read back, and {len(sample):,} of them against eager")
    computed.require_written(written.parts, plan.items.source, plan.items.ids.column)
    difference = compare_with_eager(plan, runnable, written)
    index = None
    if plan.index is not None:
        rest = _scale_progress(progress, begin=share + _CHECK, end=1.0)
        index = _build_index_entry(plan, tower, refs, written, folder / "index", rest)
    items = plan.items
    entry = VectorsEntry(
        files=refs,
        rows=items.ids.rows,
        id_column=items.ids.column,
        id_type=str(items.ids.kind),
        vector_column=VECTOR_COLUMN,
        width=plan.width,
        dtype="float32",
        output=plan.output,
        checked_rows=len(sample),
        tolerance=runnable.tolerance,
        largest_difference=difference.largest,
        scale=difference.scale,
        index=index,
        seconds=round(written.seconds, 3),
        rows_per_second=round(items.ids.rows / written.seconds, 1),
        peak_memory_bytes=peak_bytes() + written.package_peak_bytes,
    )
    if index is not None:
        files[index.file.path] = folder / "index" / "items.faiss"
    return MaterialisedVectors(entry=entry, files=files)


def compare_with_eager(plan: VectorsPlan, runnable: RunnableTower, written: WrittenVectors) -> Difference:
    """Compare the sampled vectors, read back from disk, with eager's; return the difference.

    The tolerance is the gate's: in bf16 a package rounds differently from eager.

    Raises:
        VerificationFailed: the difference is above the tolerance, or the ids are not those of the rows.
    """
    read = read_rows(written.parts, written.sample)
    ids = pa.concat_arrays([ids_of(batch, plan.items.ids.column) for batch in written.sampled])
    if not read.ids.equals(ids):
        raise VerificationFailed(
            f"{runnable.title}: ids and vectors were not written in the order of the rows"
        )
    eager = [
        runnable.run_eager(inputs)[plan.output]
        for batch in written.sampled
        for inputs in encode_calls(batch, plan.items)
    ]
    expected, found = torch.cat(eager), torch.from_numpy(read.vectors)
    difference = compare({plan.output: expected}, {plan.output: found})
    if not difference.within(runnable.tolerance):
        worst = int((expected - found).abs().amax(dim=1).argmax())
        raise VerificationFailed(
            f"{runnable.title}: the vector of row {read.rows[worst]}, item {read.ids[worst].as_py()!r}, of "
            f"{len(read.ids):,} read back, differs from eager by {difference.largest:.3g} at scale "
            f"{difference.scale:.3g}, allowed {runnable.tolerance:g} of it",
            where=plan.output,
        )
    return difference


def _build_index_entry(
    plan: VectorsPlan,
    tower: TowerName,
    refs: Sequence[FileRef],
    written: WrittenVectors,
    folder: Path,
    progress: Progress,
) -> IndexEntry:
    assert plan.index is not None, "asked to build an index"
    folder.mkdir()
    output, items = folder / "items.faiss", plan.items
    request = IndexRequest(
        parts=written.parts,
        rows=items.ids.rows,
        width=plan.width,
        index=plan.index,
        metric=items.metric,
        labels="item_ids" if items.ids.can_label_index else "row_numbers",
        output=output,
        threads=torch.get_num_threads(),
    )
    built = build_index(request, progress)
    file = file_ref(_artifact_path(tower, output, folder.parent), output)
    if file.sha256 != built.sha256:
        raise IndexFailed(f"{file.path} is not the index that was checked against the item vectors")
    if built.parts_sha256 != tuple(ref.sha256 for ref in refs):
        raise IndexFailed(f"{file.path} was built over other files of vectors than {refs[0].path}")
    return IndexEntry(
        file=file,
        parameters=plan.index,
        metric=request.metric,
        labels=request.labels,
        trained_rows=built.trained_rows,
        recall_at_10=built.recall_at_10,
        queries=built.queries,
        seconds=built.seconds,
        peak_memory_bytes=built.peak_memory_bytes,
    )


def _artifact_path(tower: TowerName, local: Path, folder: Path) -> str:
    return f"{tower}/{local.relative_to(folder).as_posix()}"


def _scale_progress(progress: Progress, *, begin: float, end: float) -> Progress:
    """Map the progress of a part of the stage to the range from `begin` to `end`."""
    return lambda fraction, detail: progress(
        None if fraction is None else begin + (end - begin) * fraction, detail
    )

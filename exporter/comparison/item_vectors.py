"""Published item vectors of two artifacts, joined by the items' ids."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from exporter.comparison.output_diff import COSINE_EDGES
from exporter.comparison.table_diff import cosines, trim_histogram
from exporter.errors import InvalidArtifact
from exporter.manifest import VectorsEntry
from exporter.reports.comparison import VectorsDiff

_COMPARED = 50_000  # items of the new artifact at most, whose vectors are held in memory
_ROWS = 1 << 14  # of the old artifact's files that are held at a time


def compare_vectors(
    old: VectorsEntry | None, new: VectorsEntry | None, old_root: Path, new_root: Path
) -> VectorsDiff | None:
    """Compare the vectors of the new artifact's first items with the old artifact's vectors of the same ids.

    The files lie below the roots. None if neither artifact has vectors.

    Raises:
        InvalidArtifact: a file is no parquet file of vectors.
    """
    if old is None and new is None:
        return None
    if old is None or new is None:
        side, items = ("new", new.rows if new else 0) if old is None else ("old", old.rows)
        counts = (0, items) if old is None else (items, 0)
        note = f"only the {side} artifact has item vectors"
        return VectorsDiff(old_items=counts[0], new_items=counts[1], compared=0, found=0, note=note)
    diff = VectorsDiff(old_items=old.rows, new_items=new.rows, compared=0, found=0)
    if old.width != new.width or old.id_type != new.id_type:
        return diff.model_copy(update={"note": "vectors or ids of different types are not compared"})
    wanted = _first_items(new, new_root)
    pairs = [_pair(batch, wanted, old, new) for batch in _batches(old, old_root)]
    old_ND, new_ND = (torch.cat(side) for side in zip(*pairs, strict=True))
    diff = diff.model_copy(update={"compared": wanted.num_rows, "found": len(old_ND)})
    if not len(old_ND):
        return diff.model_copy(update={"note": "no item is in both"})
    cosines_N = cosines(old_ND, new_ND)
    counts_of = np.histogram(cosines_N.numpy(), bins=COSINE_EDGES)[0]
    return diff.model_copy(
        update={
            "mean_cosine": float(cosines_N.mean()),
            "least_cosine": float(cosines_N.min()),
            "cosines": trim_histogram(COSINE_EDGES, np.zeros_like(counts_of), counts_of),
        }
    )


def _first_items(entry: VectorsEntry, root: Path) -> pa.Table:
    parts, left = [], _COMPARED
    for batch in _batches(entry, root):
        parts.append(batch.slice(0, left))
        left -= parts[-1].num_rows
        if left <= 0:
            break
    return pa.concat_tables(parts)


def _batches(entry: VectorsEntry, root: Path) -> Iterator[pa.Table]:
    columns = [entry.id_column, entry.vector_column]
    for file in entry.files:
        try:
            with pq.ParquetFile(root / file.path) as opened:
                for batch in opened.iter_batches(_ROWS, columns=columns, use_threads=False):
                    yield pa.table(batch)
        except (OSError, pa.ArrowException) as error:
            problem = f"{file.path} holds no item vectors: {str(error).splitlines()[0]}"
            raise InvalidArtifact(problem, where=file.path) from error


def _pair(batch: pa.Table, wanted: pa.Table, old: VectorsEntry, new: VectorsEntry) -> tuple[Tensor, Tensor]:
    """Return the vectors, old and new, of the wanted items that are in the batch."""
    places = pc.index_in(wanted[new.id_column], value_set=batch[old.id_column].combine_chunks())
    found = places.is_valid()
    return (
        _vectors(batch[old.vector_column].take(places.filter(found)), old.width),
        _vectors(wanted[new.vector_column].filter(found), new.width),
    )


def _vectors(column: pa.ChunkedArray, width: int) -> Tensor:
    arrays = [pc.list_flatten(chunk).to_numpy(zero_copy_only=False) for chunk in column.chunks]
    joined = np.concatenate(arrays) if arrays else np.empty(0, dtype=np.float32)
    return torch.from_numpy(joined.reshape(-1, width).astype(np.float64))

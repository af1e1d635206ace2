"""One wrong bit, row or id in the files of vectors or in the index over them is found, and the item named."""

from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from exporter.errors import IndexFailed, VerificationFailed
from exporter.items.index import build_index
from exporter.items.index_check import require_same_items
from exporter.items.read_back import ComputedItems
from exporter.options.index_spec import FlatIndex, HnswIndex, IndexSpec, IvfFlatIndex, IvfPqIndex
from tests.exporter.items.conftest import WriteIds, WriteVectors
from tests.exporter.items.test_index import IDS, VECTORS, request

Numbers = NDArray[np.float32]
KINDS: list[FlatIndex | HnswIndex | IvfFlatIndex | IvfPqIndex] = [
    FlatIndex(),
    HnswIndex(),
    IvfFlatIndex(nlist=8, nprobe=4),
    IvfPqIndex(nlist=8, nprobe=8, m=8),
]
TEXTS = IDS.cast(pa.string())


def one_bit(vectors: Numbers) -> Numbers:
    bits = vectors.copy().view(np.uint32)
    bits[417, 3] ^= 1
    return bits.view(np.float32)


def two_rows(vectors: Numbers) -> Numbers:
    changed = vectors.copy()
    changed[[417, 600]] = vectors[[600, 417]]
    return changed


def shifted(vectors: Numbers) -> Numbers:
    return np.concatenate([vectors[:417], np.roll(vectors[417:], 1, axis=0)])


@pytest.mark.parametrize("ids", [IDS, TEXTS], ids=["numbers", "text"])
@pytest.mark.parametrize("change", [one_bit, two_rows, shifted])
def test_a_vector_that_was_written_wrongly_is_named(
    change: Callable[[Numbers], Numbers],
    ids: pa.Array,
    write_vectors: WriteVectors,
    write_ids: WriteIds,
    tmp_path: Path,
) -> None:
    source = write_ids(ids.slice(0, 400), ids.slice(400))
    computed = ComputedItems(tmp_path / "computed")
    for start in range(0, len(ids), 90):
        computed.add(ids.slice(start, 90), VECTORS[start : start + 90])
    (tmp_path / "vectors").mkdir()
    computed.require_written(write_vectors(ids, VECTORS), source, "item")
    computed = ComputedItems(tmp_path / "computed")
    computed.add(ids, VECTORS)
    with pytest.raises(VerificationFailed, match=f"row 417, item '?{IDS[417].as_py()}'?, as written"):
        computed.require_written(write_vectors(ids, change(VECTORS)), source, "item")


@pytest.mark.parametrize("rows", [700, 730])
def test_ids_that_are_not_those_of_the_rows_are_named(
    rows: int, write_vectors: WriteVectors, write_ids: WriteIds, tmp_path: Path
) -> None:
    source = write_ids(IDS)
    others = pa.concat_arrays([IDS.slice(0, 500), IDS.slice(501), IDS.slice(500, 1)]).slice(0, rows)
    computed = ComputedItems(tmp_path / "computed")
    computed.add(others, VECTORS[:rows])
    with pytest.raises(VerificationFailed, match="row 500 was written as item 501007, and is 500007 in"):
        computed.require_written(write_vectors(others, VECTORS[:rows]), source, "item")


def test_rows_that_are_missing_are_missed(
    write_vectors: WriteVectors, write_ids: WriteIds, tmp_path: Path
) -> None:
    computed = ComputedItems(tmp_path / "computed")
    computed.add(IDS, VECTORS)
    with pytest.raises(VerificationFailed, match="end after 729 rows"):
        computed.require_written(write_vectors(IDS.slice(0, 729), VECTORS[:729]), write_ids(IDS), "item")


@pytest.mark.parametrize("labels", ["item_ids", "row_numbers"])
@pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])
def test_an_index_over_other_vectors_is_refused(
    kind: IndexSpec, labels: str, write_vectors: WriteVectors, tmp_path: Path
) -> None:
    output = tmp_path / "items.faiss"
    asked = request(write_vectors(IDS, VECTORS), output, kind, labels=labels)  # type: ignore[arg-type]  # one of two words
    build_index(asked, lambda fraction, detail: None)  # which checks it as well
    index = faiss.read_index(str(output))
    require_same_items(index, asked)
    other = request(write_vectors(IDS, two_rows(VECTORS)), output, kind, labels=labels)  # type: ignore[arg-type]  # one of two words
    with pytest.raises(IndexFailed, match=f"item {417007 if labels == 'item_ids' else 417} "):
        require_same_items(index, other)


@pytest.mark.parametrize("kind", KINDS, ids=[kind.kind for kind in KINDS])
def test_an_index_with_other_labels_is_refused(
    kind: IndexSpec, write_vectors: WriteVectors, tmp_path: Path
) -> None:
    output = tmp_path / "items.faiss"
    build_index(request(write_vectors(IDS, VECTORS), output, kind), lambda fraction, detail: None)
    index = faiss.read_index(str(output))
    others = pa.concat_arrays([IDS.slice(0, 417), pa.array([5]), IDS.slice(418)])
    with pytest.raises(IndexFailed, match="does not hold item 5 "):
        require_same_items(index, request(write_vectors(others, VECTORS), output, kind))

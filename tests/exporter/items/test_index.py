"""Indexes over small catalogues, each built and measured in a process of its own."""

from pathlib import Path
from typing import Literal

import faiss
import numpy as np
import pyarrow as pa
import pytest

from exporter.errors import IndexFailed
from exporter.items.index import IndexRequest, build_index
from exporter.items.index_plan import resolve_index
from exporter.manifest import Metric
from exporter.options.index_spec import FlatIndex, HnswIndex, IndexSpec, IvfFlatIndex, IvfPqIndex
from tests.exporter.items.conftest import WIDTH, WriteVectors, clustered

ROWS = 730
IDS = pa.array([number * 1000 + 7 for number in range(ROWS)])
VECTORS = clustered(ROWS)


def request(
    parts: tuple[Path, ...],
    output: Path,
    index: IndexSpec,
    *,
    metric: Metric = Metric.COSINE,
    labels: Literal["item_ids", "row_numbers"] = "item_ids",
    rows: int = ROWS,
) -> IndexRequest:
    return IndexRequest(
        parts=parts,
        rows=rows,
        width=WIDTH,
        index=resolve_index(index, rows=rows, width=WIDTH),
        metric=metric,
        labels=labels,
        output=output,
        threads=1,
    )


@pytest.mark.parametrize(
    ("index", "recall"),
    [
        (FlatIndex(), 1.0),
        (HnswIndex(), 0.95),
        (IvfFlatIndex(nlist=8, nprobe=4), 0.9),
        (IvfPqIndex(nlist=8, nprobe=8, m=8), 0.7),
    ],
)
def test_every_kind_finds_neighbours_by_their_ids(
    index: IndexSpec, recall: float, write_vectors: WriteVectors, tmp_path: Path
) -> None:
    told: list[float] = []
    output = tmp_path / "items.faiss"
    asked = request(write_vectors(IDS, VECTORS), output, index)
    built = build_index(asked, lambda fraction, detail: told.append(fraction or 0.0))
    assert built.recall_at_10 is not None and recall <= built.recall_at_10 <= 1.0
    assert (built.queries, built.peak_memory_bytes > 0) == (512, True)
    assert told == sorted(told) and told[-1] == 1.0
    _, found = faiss.read_index(str(output)).search(VECTORS[40:41], 1)
    assert isinstance(index, IvfPqIndex) or found.tolist() == [[40_007]]


@pytest.mark.parametrize("metric", [Metric.INNER_PRODUCT, Metric.L2])
def test_a_few_lists_out_of_many_find_less(
    metric: Metric, write_vectors: WriteVectors, tmp_path: Path
) -> None:
    """The measure can tell a bad index from a good one, however short the vectors are."""
    vectors = 1e-4 * np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(np.float32)
    parts = write_vectors(IDS, vectors.astype(np.float32))
    asked = request(parts, tmp_path / "items.faiss", IvfFlatIndex(nlist=64, nprobe=1), metric=metric)
    recall = build_index(asked, lambda fraction, detail: None).recall_at_10
    assert recall is not None and 0.05 < recall < 0.7


def test_items_that_are_all_alike_count_as_found(write_vectors: WriteVectors, tmp_path: Path) -> None:
    alike = np.repeat(clustered(1), ROWS, axis=0)
    asked = request(write_vectors(IDS, alike), tmp_path / "items.faiss", FlatIndex())
    assert build_index(asked, lambda fraction, detail: None).recall_at_10 == 1.0


def test_strings_are_found_by_their_rows(write_vectors: WriteVectors, tmp_path: Path) -> None:
    parts = write_vectors(IDS.cast(pa.string()), 3 * VECTORS)
    output = tmp_path / "items.faiss"
    asked = request(parts, output, FlatIndex(), metric=Metric.L2, labels="row_numbers")
    assert build_index(asked, lambda fraction, detail: None).recall_at_10 == 1.0
    _, found = faiss.read_index(str(output)).search(3 * VECTORS[40:41], 1)
    assert found.tolist() == [[40]]


def test_a_handful_of_items_is_not_measured(write_vectors: WriteVectors, tmp_path: Path) -> None:
    parts = write_vectors(IDS[:10], VECTORS[:10])
    built = build_index(
        request(parts, tmp_path / "items.faiss", FlatIndex(), rows=10), lambda fraction, detail: None
    )
    assert (built.recall_at_10, built.queries) == (None, 0)


def test_a_build_that_ends_early_says_what_it_said_last(write_vectors: WriteVectors, tmp_path: Path) -> None:
    asked = request(write_vectors(IDS, VECTORS), tmp_path / "nowhere" / "items.faiss", FlatIndex())
    with pytest.raises(IndexFailed, match="flat index of 730 items ended with status 1: .*nowhere"):
        build_index(asked, lambda fraction, detail: None)

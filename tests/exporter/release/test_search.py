"""Published items are found as a server finds them, and hits are counted by their definitions."""

import math
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from exporter.errors import InvalidArtifact, InvalidRows
from exporter.items.vector_files import VectorsWriter
from exporter.manifest import Metric
from exporter.release.search import ItemSearch, Places, PublishedItems, hits_and_gains

WIDTH = 8


def vectors(rows: int, seed: int = 0) -> NDArray[np.float32]:
    drawn = np.random.default_rng(seed).normal(size=(rows, WIDTH)).astype(np.float32)
    unit: NDArray[np.float32] = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit


def published(folder: Path, ids: pa.Array, items: NDArray[np.float32], *, indexed: bool) -> PublishedItems:
    with VectorsWriter(folder, "item", ids.type, width=WIDTH, group_rows=7) as writer:
        writer.write(ids, items)
    index = folder / "items.faiss" if indexed else None
    by_id = indexed and pa.types.is_integer(ids.type)
    if index is not None:
        flat = faiss.IndexIDMap2(faiss.IndexFlatIP(WIDTH)) if by_id else faiss.IndexFlatIP(WIDTH)
        if by_id:
            flat.add_with_ids(items, ids.to_numpy())
        else:
            flat.add(items)
        faiss.write_index(flat, str(index))
    return PublishedItems(
        parts=tuple(writer.parts),
        id_column="item",
        index=index,
        labels_are_ids=by_id,
        metric=Metric.COSINE,
        exact=True,
    )


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize("ids", [pa.array(range(1000, 1040)), pa.array([f"item {n}" for n in range(40)])])
def test_items_are_found_by_their_ids_with_an_index_and_without(
    ids: pa.Array, indexed: bool, tmp_path: Path
) -> None:
    items, users = vectors(40), vectors(11, seed=1) * 3
    with ItemSearch(published(tmp_path, ids, items, indexed=indexed), WIDTH, tmp_path) as search:
        found = search.find(users, 5)
        assert search.items == 40
        assert found.tolist() == np.argsort(-users @ items.T, axis=1)[:, :5].tolist()
        places = search.rows_of(pa.concat_arrays([ids.slice(3, 2), ids.slice(39)]))
        assert places.tolist() == [3, 4, 39]
        assert search.rows_of(pa.array([5], pa.int64()).cast(ids.type)).tolist() == [-1]


def test_a_user_of_several_interests_gets_the_nearest_to_any(tmp_path: Path) -> None:
    items, users = vectors(40), vectors(12, seed=1).reshape(4, 3, WIDTH)
    with ItemSearch(published(tmp_path, pa.array(range(40)), items, indexed=True), WIDTH, tmp_path) as search:
        best = (users @ items.T).max(axis=1)
        assert search.find(users, 6).tolist() == np.argsort(-best, axis=1)[:, :6].tolist()


@pytest.mark.parametrize("chosen", [pa.array(["a shoe"]), pa.array([1.5]), pa.array([{"id": 1}])])
def test_chosen_items_that_are_no_ids_are_named(chosen: pa.Array) -> None:
    with pytest.raises(InvalidRows, match="items are of type .* published by ids of type int64"):
        Places(pa.array([1, 2])).find(chosen)


def test_vectors_of_another_width_are_refused(tmp_path: Path) -> None:
    items = published(tmp_path, pa.array(range(40)), vectors(40), indexed=True)
    with pytest.raises(InvalidArtifact, match="vectors of width 8, and the user tower gives 9"):
        ItemSearch(items, WIDTH + 1, tmp_path).__enter__()


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    items = published(tmp_path, pa.array(range(40)), vectors(40), indexed=True)
    assert items.index is not None
    items.index.write_bytes(b"not an index")
    with pytest.raises(InvalidArtifact, match="the item index cannot be searched"):
        ItemSearch(items, WIDTH, tmp_path).__enter__()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.permutations(range(6)), st.sets(st.integers(-1, 8), min_size=1, max_size=4)),
        min_size=1,
        max_size=5,
    )
)
def test_hits_and_gains_are_their_formulas(rows: list[tuple[list[int], set[int]]]) -> None:
    cut_offs = (1, 3, 6)
    found = np.array([order for order, _ in rows])
    hits, gains = hits_and_gains(found, [np.array(sorted(items)) for _, items in rows], cut_offs)
    for row, (order, items) in enumerate(rows):
        for place, k in enumerate(cut_offs):
            gained = sum(1 / math.log2(n + 2) for n, item in enumerate(order[:k]) if item in items)
            ideal = sum(1 / math.log2(n + 2) for n in range(min(k, len(items))))
            assert hits[row, place] == any(item in items for item in order[:k])
            assert gains[row, place] == pytest.approx(gained / ideal)

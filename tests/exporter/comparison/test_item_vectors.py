"""Published item vectors, joined by the items' ids, in whichever order and however many files."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from exporter.comparison import item_vectors
from exporter.comparison.item_vectors import compare_vectors
from exporter.errors import InvalidArtifact
from exporter.items.vector_files import VectorsWriter
from exporter.manifest import FileRef, VectorsEntry

VECTORS = np.random.default_rng(5).standard_normal((40, 4), dtype=np.float32)


def write(folder: Path, ids: list[int], vectors: np.ndarray, *, width: int = 4) -> VectorsEntry:
    folder.mkdir()
    with VectorsWriter(folder, "item_id", pa.int64(), width=width, group_rows=8, part_bytes=200) as writer:
        writer.write(pa.array(ids), vectors)
    files = tuple(FileRef(path=part.name, size=1, sha256="") for part in writer.parts)
    return VectorsEntry(
        files=files,
        rows=len(ids),
        id_column="item_id",
        id_type="int64",
        vector_column="vector",
        width=width,
        dtype="float32",
        output="item_tower_emb",
        checked_rows=1,
        tolerance=1e-5,
        largest_difference=0.0,
        scale=1.0,
        seconds=1.0,
        rows_per_second=1.0,
        peak_memory_bytes=1,
    )


def test_items_are_found_by_id_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_vectors, "_ROWS", 3)
    old = write(tmp_path / "old", list(range(40)), VECTORS)
    order = np.random.default_rng(6).permutation(30)
    new_vectors = VECTORS[order].copy()
    new_vectors[0] *= -1
    new_ids = [*order.tolist(), 900, 901]
    new = write(tmp_path / "new", new_ids, np.concatenate([new_vectors, VECTORS[:2]]))
    assert len(old.files) > 1
    diff = compare_vectors(old, new, tmp_path / "old", tmp_path / "new")
    assert diff is not None
    assert (diff.old_items, diff.new_items, diff.compared, diff.found) == (40, 32, 32, 30)
    assert diff.least_cosine == pytest.approx(-1)
    assert diff.mean_cosine == pytest.approx(28 / 30)
    assert diff.cosines is not None and sum(diff.cosines.new) == 30


def test_only_the_first_items_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_vectors, "_COMPARED", 5)
    old, new = (write(tmp_path / name, list(range(40)), VECTORS) for name in ("old", "new"))
    diff = compare_vectors(old, new, tmp_path / "old", tmp_path / "new")
    assert diff is not None
    assert (diff.compared, diff.found) == (5, 5)
    assert diff.least_cosine == pytest.approx(1)


def test_what_cannot_be_compared_is_said_as_such(tmp_path: Path) -> None:
    old = write(tmp_path / "old", [1, 2], VECTORS[:2])
    others = write(tmp_path / "others", [3], VECTORS[:1])
    wide = write(tmp_path / "wide", [1], np.ones((1, 8), dtype=np.float32), width=8)
    found = {
        name: compare_vectors(old, entry, tmp_path / "old", tmp_path / name)
        for name, entry in (("others", others), ("wide", wide), ("none", None))
    }
    notes = {name: diff.note for name, diff in found.items() if diff}
    assert notes == {
        "others": "no item is in both",
        "wide": "vectors or ids of different types are not compared",
        "none": "only the old artifact has item vectors",
    }
    assert compare_vectors(None, None, tmp_path, tmp_path) is None


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    entry = write(tmp_path / "old", [1], VECTORS[:1])
    (tmp_path / "old" / entry.files[0].path).write_bytes(b"not parquet")
    with pytest.raises(InvalidArtifact, match=f"{entry.files[0].path} holds no item vectors"):
        compare_vectors(entry, entry, tmp_path / "old", tmp_path / "old")

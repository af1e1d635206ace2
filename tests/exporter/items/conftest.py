"""Vectors on disk, and item ids as parquet."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from exporter.data.parquet import ParquetSource, open_parquet
from exporter.items.vector_files import VectorsWriter

WIDTH = 8

WriteIds = Callable[..., ParquetSource]
WriteVectors = Callable[[pa.Array, NDArray[np.float32]], tuple[Path, ...]]


@pytest.fixture
def write_ids(tmp_path: Path) -> WriteIds:
    """Files of a column `item`, one per array."""

    def write(*files: pa.Array) -> ParquetSource:
        for number, ids in enumerate(files):
            pq.write_table(pa.table({"item": ids}), tmp_path / f"{number}.parquet")
        return open_parquet(str(tmp_path))

    return write


@pytest.fixture
def write_vectors(tmp_path: Path) -> WriteVectors:
    """Parts of small row groups; returns their paths."""

    def write(ids: pa.Array, vectors: NDArray[np.float32]) -> tuple[Path, ...]:
        width = vectors.shape[1]
        with VectorsWriter(
            tmp_path, "item", ids.type, width=width, group_rows=100, part_bytes=4 * width * 250
        ) as writer:
            for start in range(0, len(ids), 70):
                writer.write(ids.slice(start, 70), vectors[start : start + 70])
        return tuple(writer.parts)

    return write


def clustered(rows: int, *, width: int = WIDTH) -> NDArray[np.float32]:
    """Unit vectors in twenty bunches."""
    random = np.random.default_rng(5)
    centres = random.standard_normal((20, width))
    vectors = centres[random.integers(0, 20, rows)] + 0.1 * random.standard_normal((rows, width))
    unit: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit

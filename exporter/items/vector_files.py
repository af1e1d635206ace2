"""Write item vectors to parquet files as they are computed, and read them a row group at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from exporter.manifest import VECTOR_COLUMN

Vectors = NDArray[np.float32]  # shape (rows, width)
Labels = NDArray[np.int64]

_GROUP_ROWS = 1 << 16  # rows of a row group, which are in memory until it is written
_PART_BYTES = 1 << 30  # bytes of vectors in a file, roughly


@dataclass(frozen=True, kw_only=True, eq=False)
class VectorRows:
    """Items with their ids and vectors; `rows` are their row numbers over all files."""

    rows: Labels
    ids: pa.Array
    vectors: Vectors

    def labels(self, kind: Literal["item_ids", "row_numbers"]) -> Labels:
        """Return the labels of these vectors in an index: the items' ids, or their row numbers."""
        if kind == "item_ids":
            ids: Labels = self.ids.to_numpy().astype(np.int64)
            return ids
        return self.rows


class VectorsWriter:
    """Context manager that writes ids and vectors to part files in a folder."""

    def __init__(
        self,
        folder: Path,
        id_column: str,
        id_type: pa.DataType,
        *,
        width: int,
        group_rows: int = _GROUP_ROWS,
        part_bytes: int = _PART_BYTES,
    ) -> None:
        """Write to `folder`, which must exist."""
        element = pa.field("element", pa.float32(), nullable=False)
        self.parts: list[Path] = []
        self._folder = folder
        self._schema = pa.schema(
            [
                pa.field(id_column, id_type, nullable=False),
                pa.field(VECTOR_COLUMN, pa.list_(element, width), nullable=False),
            ]
        )
        self._group_rows, self._part_rows = group_rows, max(group_rows, part_bytes // (4 * width))
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._rows_in_part = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._flush(self._pending_rows)
        finally:
            self._end_part()

    def write(self, ids: pa.Array, vectors: Vectors) -> None:
        """Append items."""
        lists = pa.FixedSizeListArray.from_arrays(
            pa.array(vectors.reshape(-1)), type=self._schema.field(VECTOR_COLUMN).type
        )
        self._pending.append(pa.Table.from_arrays([ids, lists], schema=self._schema))
        self._pending_rows += len(ids)
        while self._pending_rows >= self._group_rows:
            self._flush(self._group_rows)

    def _flush(self, rows: int) -> None:
        """Write the first `rows` of the rows in memory as one row group."""
        if not rows:
            return
        pending = pa.concat_tables(self._pending)
        writer = self._writer or self._begin_part()
        writer.write_table(pending.slice(0, rows), row_group_size=rows)
        self._pending, self._pending_rows = [pending.slice(rows)], self._pending_rows - rows
        self._rows_in_part += rows
        if self._rows_in_part >= self._part_rows:
            self._end_part()

    def _begin_part(self) -> pq.ParquetWriter:
        path = self._folder / f"part-{len(self.parts):05}.parquet"
        self.parts.append(path)
        # Vectors look like noise: neither a dictionary nor compression makes them smaller.
        codecs = {self._schema.names[0]: "zstd", f"{VECTOR_COLUMN}.list.element": "none"}
        self._writer = pq.ParquetWriter(
            path, self._schema, compression=codecs, use_dictionary=False, write_statistics=False
        )
        return self._writer

    def _end_part(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer, self._rows_in_part = None, 0


def read_groups(parts: Sequence[Path]) -> Iterator[VectorRows]:
    """Yield all rows in order, a row group at a time."""
    for path, group, first_row, _ in _groups(parts):
        yield _read(path, group, first_row)


def read_rows(parts: Sequence[Path], rows: NDArray[np.int64]) -> VectorRows:
    """Read the rows with these numbers, which ascend; row groups without any of them are not read."""
    ids, vectors = [], []
    for path, group, first_row, count in _groups(parts):
        begin, end = np.searchsorted(rows, [first_row, first_row + count])
        if begin == end:
            continue
        read, within = _read(path, group, first_row), rows[begin:end] - first_row
        ids.append(read.ids.take(pa.array(within)))
        vectors.append(read.vectors[within])
    return VectorRows(rows=rows, ids=pa.concat_arrays(ids), vectors=np.concatenate(vectors))


def _groups(parts: Sequence[Path]) -> Iterator[tuple[pq.ParquetFile, int, int, int]]:
    """Yield each row group: its file, its number there, its first row over all files, and its row count."""
    first_row = 0
    for path in parts:
        with pq.ParquetFile(path) as file:
            for group in range(file.metadata.num_row_groups):
                count = file.metadata.row_group(group).num_rows
                yield file, group, first_row, count
                first_row += count


def _read(file: pq.ParquetFile, group: int, first_row: int) -> VectorRows:
    table = file.read_row_group(group)
    ids, lists = (pa.concat_arrays(column.chunks) for column in table.columns)
    vectors = lists.flatten().to_numpy().reshape(-1, lists.type.list_size)
    rows = np.arange(first_row, first_row + len(ids), dtype=np.int64)
    return VectorRows(rows=rows, ids=ids, vectors=vectors)

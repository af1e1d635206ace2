"""Check the items' ids before any work begins: none is missing, all have one type, none occurs twice."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from exporter.data.column import ColumnPlace
from exporter.data.parquet import ParquetSource, RowBatch
from exporter.errors import InvalidRows

_ROWS_READ = 1 << 17
_ROWS_PER_BUCKET = 1 << 20  # compared at a time: 16 MB of keys, and twice that to sort them
_MOST_ROWS = 1 << 32  # in all files, as their footers state it
_CANDIDATES = 16  # pairs of equal keys per bucket, earliest first, whose ids are compared themselves

Keys = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ItemIds:
    """Facts on the ids of all items."""

    column: str
    kind: pa.DataType
    rows: int
    can_label_index: bool  # FAISS labels vectors with non-negative 64-bit integers


def check_ids(
    source: ParquetSource, column: str, *, scratch: Path, rows_per_bucket: int = _ROWS_PER_BUCKET
) -> ItemIds:
    """Read and check every id, in memory that does not grow with their number.

    Raises:
        InvalidRows: an id is null, neither an integer nor text, or occurs twice; names file and rows.
    """
    rows, kind, first_file, lowest = source.count_rows(), None, "", 0
    if rows > _MOST_ROWS:
        raise InvalidRows(
            f"{source.uri} has {rows:,} rows, more than the {_MOST_ROWS:,} items that are read",
            hint="give one row per item",
            where=source.uri,
        )
    with tempfile.TemporaryDirectory(dir=scratch, prefix="ids-") as folder:
        keys = _Buckets(Path(folder), -(-rows // rows_per_bucket))
        for batch in source.batches([column], rows_per_batch=_ROWS_READ):
            ids = ids_of(batch, column)
            if kind is None:
                kind, first_file = ids.type, batch.where
            elif ids.type != kind:
                _place(batch, column).refuse(
                    f"is of type {ids.type}, and of type {kind} in {first_file}",
                    hint="write the ids of all files with one type",
                )
            batch_keys = _keys_of(ids)
            lowest = min(lowest, int(batch_keys.min()))
            keys.add(batch_keys)
        for earlier, later in keys.find_repeated():
            _refuse_if_equal(source, column, earlier, later)
    assert kind is not None, "a source without rows is refused when it is read"
    numbers = bool(pa.types.is_integer(kind))
    return ItemIds(column=column, kind=kind, rows=rows, can_label_index=numbers and lowest >= 0)


def ids_of(batch: RowBatch, column: str) -> pa.Array:
    """Return the ids of these rows, decoded; raise InvalidRows if one is null or of another type."""
    array = pa.concat_arrays(batch.table.column(column).chunks)
    if isinstance(array.type, pa.DictionaryType):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    if not (pa.types.is_integer(array.type) or _is_text(array.type)):
        _place(batch, column).refuse(
            f"is of type {array.type}, but ids are integers or strings",
            hint="name the column of the ids in item_id_column",
        )
    if array.null_count:
        row = int(array.is_null().to_numpy(zero_copy_only=False).argmax())
        _place(batch, column).refuse("an item has no id", row=row, hint="give it an id, or leave the row out")
    return array


class _Buckets:
    """Keys with their row numbers, in files on disk; equal keys are in the same file."""

    def __init__(self, folder: Path, count: int) -> None:
        self._paths = [folder / str(number) for number in range(max(1, count))]
        self._rows = 0

    def add(self, keys: Keys) -> None:
        """Add the keys of the next rows."""
        row_numbers = np.arange(self._rows, self._rows + len(keys), dtype=np.int64)
        self._rows += len(keys)
        pairs = np.column_stack([keys, row_numbers])
        if len(self._paths) == 1:
            return _append(self._paths[0], pairs)
        mixed = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        bucket = mixed % np.uint64(len(self._paths))
        for number in np.unique(bucket):
            _append(self._paths[int(number)], pairs[bucket == number])
        return None

    def find_repeated(self) -> list[tuple[int, int]]:
        """Return pairs of rows with equal keys, sorted by the later row; at most _CANDIDATES of a bucket."""
        found = [pair for path in self._paths if path.exists() for pair in _find_repeated(path)]
        return sorted(found, key=lambda pair: pair[1])


def _append(path: Path, pairs: Keys) -> None:
    with path.open("ab") as file:
        pairs.tofile(file)


def _find_repeated(path: Path) -> Iterator[tuple[int, int]]:
    pairs = np.fromfile(path, dtype=np.int64).reshape(-1, 2)
    order = np.argsort(pairs[:, 0], kind="stable")  # stable: keeps the earlier row of equal keys first
    keys, rows = pairs[order, 0], pairs[order, 1]
    again = np.flatnonzero(keys[1:] == keys[:-1])
    for position in again[np.argsort(rows[again + 1])][:_CANDIDATES]:
        yield int(rows[position]), int(rows[position + 1])


def _keys_of(ids: pa.Array) -> Keys:
    """Return a number for each id: the id itself if it is an integer, else its hash."""
    if pa.types.is_integer(ids.type):
        numbers: Keys = ids.to_numpy().astype(np.int64)
        return numbers
    return np.fromiter((hash(text) for text in ids.to_pylist()), dtype=np.int64, count=len(ids))


def _refuse_if_equal(source: ParquetSource, column: str, earlier: int, later: int) -> None:
    """Raise InvalidRows if the ids of two rows are equal; different texts may have the same key."""
    (first_file, first_row, first), (file, row, second) = _read_ids_at(source, column, [earlier, later])
    if first == second:
        raise InvalidRows(
            f"{file}, column {column}, row {row}: item {second!r} is also row {first_row} of {first_file}",
            hint="keep one row of each item, or name the column of the ids in item_id_column",
            where=file,
        )


def _read_ids_at(source: ParquetSource, column: str, rows: list[int]) -> Iterator[tuple[str, int, Any]]:
    """Yield file, row in the file, and id of these rows, which are counted over all files and ascend."""
    start = 0
    for batch in source.batches([column], rows_per_batch=_ROWS_READ):
        while rows and rows[0] < start + batch.table.num_rows:
            within = rows[0] - start
            yield batch.where, batch.first_row + within, batch.table.column(column)[within].as_py()
            rows = rows[1:]
        start += batch.table.num_rows


def _place(batch: RowBatch, column: str) -> ColumnPlace:
    return ColumnPlace(where=batch.where, column=column, first_row=batch.first_row)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

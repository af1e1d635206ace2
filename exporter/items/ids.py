"""The items' ids, looked at before any work begins: all there, of one type, none twice."""

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
_ROWS_PER_BUCKET = 1 << 20  # looked through at a time: 16 MB of keys, and twice that to sort them
_CANDIDATES = 16  # of a bucket, earliest first, whose ids are looked at themselves

Keys = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ItemIds:
    """What all the items' ids have in common."""

    column: str
    kind: pa.DataType
    rows: int
    can_label_index: bool  # FAISS labels vectors with non-negative 64-bit integers


def check_ids(
    source: ParquetSource, column: str, *, scratch: Path, rows_per_bucket: int = _ROWS_PER_BUCKET
) -> ItemIds:
    """Read every id, in memory that does not grow with their number.

    Raises:
        InvalidRows: an id is null, of a type that names nothing, or comes twice; with file and rows.
    """
    rows, kind, first_file, lowest = source.count_rows(), None, "", 0
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
    """The ids of these rows, without encodings."""
    array = pa.concat_arrays(batch.table.column(column).chunks)
    if isinstance(array.type, pa.DictionaryType):
        array = array.dictionary_decode()
    if pa.types.is_string_view(array.type):
        array = array.cast(pa.large_string())
    if not (pa.types.is_integer(array.type) or _is_text(array.type)):
        _place(batch, column).refuse(
            f"is of type {array.type}, but ids are integers or strings",
            hint="say in item_id_column which column names the items",
        )
    if array.null_count:
        row = int(array.is_null().to_numpy(zero_copy_only=False).argmax())
        _place(batch, column).refuse("an item has no id", row=row, hint="give it one, or leave the row out")
    return array


class _Buckets:
    """Keys and the rows they are from, on disk, equal keys in one bucket."""

    def __init__(self, folder: Path, count: int) -> None:
        self._paths = [folder / str(number) for number in range(max(1, count))]
        self._rows = 0

    def add(self, keys: Keys) -> None:
        """The keys of the rows that follow."""
        places = np.arange(self._rows, self._rows + len(keys), dtype=np.int64)
        self._rows += len(keys)
        pairs = np.column_stack([keys, places])
        if len(self._paths) == 1:
            return _append(self._paths[0], pairs)
        mixed = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
        bucket = mixed % np.uint64(len(self._paths))
        for number in np.unique(bucket):
            _append(self._paths[int(number)], pairs[bucket == number])
        return None

    def find_repeated(self) -> list[tuple[int, int]]:
        """Rows of equal keys, an earlier and a later one, in the order of the later; not all of many."""
        found = [pair for path in self._paths if path.exists() for pair in _find_repeated(path)]
        return sorted(found, key=lambda pair: pair[1])


def _append(path: Path, pairs: Keys) -> None:
    with path.open("ab") as file:
        pairs.tofile(file)


def _find_repeated(path: Path) -> Iterator[tuple[int, int]]:
    pairs = np.fromfile(path, dtype=np.int64).reshape(-1, 2)
    order = np.argsort(pairs[:, 0], kind="stable")  # stable: of equal keys the earlier row stays first
    keys, rows = pairs[order, 0], pairs[order, 1]
    again = np.flatnonzero(keys[1:] == keys[:-1])
    for position in again[np.argsort(rows[again + 1])][:_CANDIDATES]:
        yield int(rows[position]), int(rows[position + 1])


def _keys_of(ids: pa.Array) -> Keys:
    """A number for each id; equal ids have equal ones, and of integers different ids have different ones."""
    if pa.types.is_integer(ids.type):
        numbers: Keys = ids.to_numpy().astype(np.int64)
        return numbers
    return np.fromiter((hash(text) for text in ids.to_pylist()), dtype=np.int64, count=len(ids))


def _refuse_if_equal(source: ParquetSource, column: str, earlier: int, later: int) -> None:
    """Different texts may have one key: look at the two themselves."""
    (first_file, first_row, first), (file, row, second) = _read_ids_at(source, column, [earlier, later])
    if first == second:
        raise InvalidRows(
            f"{file}, column {column}, row {row}: item {second!r} is also row {first_row} of {first_file}",
            hint="keep one row of each item, or say in item_id_column which column names them",
            where=file,
        )


def _read_ids_at(source: ParquetSource, column: str, rows: list[int]) -> Iterator[tuple[str, int, Any]]:
    """File, row in it and id of rows counted over all files, in ascending order."""
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

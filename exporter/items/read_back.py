"""Read back every item that was written, and hold it against what was computed and against the input."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from exporter.data.parquet import ParquetSource
from exporter.errors import VerificationFailed
from exporter.items.ids import ids_of
from exporter.items.row_hashes import Hashes, hash_items
from exporter.items.vector_files import VectorRows, Vectors, read_groups

_ROWS_READ = 1 << 17


class ComputedItems:
    """Hashes of all items as they were computed, in a file: eight bytes for each."""

    def __init__(self, path: Path) -> None:
        """Write to `path`, which must not exist."""
        self._path = path
        self._path.touch(exist_ok=False)

    def add(self, ids: pa.Array, vectors: Vectors) -> None:
        """Add the next items."""
        with self._path.open("ab") as file:
            hash_items(ids, vectors).tofile(file)

    def require_written(self, parts: Sequence[Path], source: ParquetSource, column: str) -> None:
        """Check that the files hold exactly these items, in order, under the ids of the input's rows.

        Raises:
            VerificationFailed: naming the row.
        """
        own_ids, done = _Ids(source, column), 0
        with self._path.open("rb") as file:
            for group in read_groups(parts):
                count = len(group.ids)
                computed: Hashes = np.fromfile(file, dtype=np.uint64, count=count)
                ids = own_ids.take(count)
                if len(computed) != count or len(ids) != count:
                    raise VerificationFailed(
                        f"the files of item vectors hold more rows than the {done + len(computed):,} that "
                        "were computed",
                        where=str(parts[0].parent.name),
                    )
                _require_same_ids(group, ids)
                _require_same_rows(group, computed)
                done += count
            if file.read(1):
                raise VerificationFailed(
                    f"the files of item vectors end after {done:,} rows, and more were computed",
                    where=str(parts[0].parent.name),
                )
        self._path.unlink()


class _Ids:
    """The ids of the input's rows, read again from its files."""

    def __init__(self, source: ParquetSource, column: str) -> None:
        self._batches: Iterator[pa.Array] = (
            ids_of(batch, column) for batch in source.batches([column], rows_per_batch=_ROWS_READ)
        )
        self._left: pa.Array | None = None

    def take(self, count: int) -> pa.Array:
        """Return the next `count` ids; fewer at the end."""
        taken: list[pa.Array] = []
        while count > 0:
            left = self._left if self._left is not None else next(self._batches, None)
            if left is None:
                break
            taken.append(left.slice(0, count))
            count -= len(taken[-1])
            self._left = left.slice(len(taken[-1])) if len(left) > len(taken[-1]) else None
        return pa.concat_arrays(taken) if taken else pa.array([])


def _require_same_ids(group: VectorRows, ids: pa.Array) -> None:
    if group.ids.equals(ids):
        return
    place = next(place for place in range(len(ids)) if group.ids[place].as_py() != ids[place].as_py())
    raise VerificationFailed(
        f"item vectors: row {group.rows[place]} was written as item {group.ids[place].as_py()!r}, and is "
        f"{ids[place].as_py()!r} in the input",
        where=f"row {group.rows[place]}",
    )


def _require_same_rows(group: VectorRows, computed: Hashes) -> None:
    wrong = np.flatnonzero(hash_items(group.ids, group.vectors) != computed)
    if len(wrong):
        place = int(wrong[0])
        raise VerificationFailed(
            f"item vectors: the vector of row {group.rows[place]}, item {group.ids[place].as_py()!r}, as "
            f"written, is not what the package computed; of {len(group.ids):,} rows {len(wrong):,} differ",
            where=f"row {group.rows[place]}",
        )

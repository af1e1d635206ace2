"""Parquet files of a URI, streamed: a file, a folder or a pattern in any store."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq

from exporter.data.memory_limit import limit_memory, memory_in_use
from exporter.data.values import count_row_values, split_rows
from exporter.errors import InvalidRows, InvalidSpec, SourceNotFound, StorageError
from exporter.redaction import name_first
from exporter.storage.open import local_path, open_store
from exporter.storage.store import ArtifactStore, StoredFile

MOST_COLUMNS = 20_000  # columns of a file
MOST_ROW_VALUES = 1 << 20  # values of a column per row, on average over a group of rows

_BATCH_VALUES = 1 << 22  # values of all columns in one batch
_BATCH_BYTES = 256 << 20  # of all columns in one batch, as far as the footer tells them
_READ_AHEAD = 8 << 20  # bytes of each column that are read at a time
_READ_AHEAD_IN_ALL = 256 << 20  # of all columns
_GROWTH = 192 << 20  # bytes that reading one batch may take: pages, dictionaries, values and their levels
_PAGES = 4 << 20  # of each column, beside that: a page, packed and unpacked, and a dictionary
_THREAD = 16 << 20  # of each thread that decodes columns: its stack
_MOST_GROWTH = 2 << 30
_FOOTER_GROWTH = 1 << 30
_FEWER = 8  # times fewer rows are read at a time, once a batch took too much
_SIGNS = "*?["  # characters that make a name a pattern


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Consecutive rows of one file."""

    where: str  # URI of the file
    first_row: int  # number of the first of these rows in the file, counted from 0
    table: pa.Table


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """One parquet file of a store; its content is read only when it is asked for."""

    store: ArtifactStore = field(repr=False)
    stored: StoredFile

    @property
    def uri(self) -> str:
        return self.store.uri_of(self.stored.key)

    def batches(self, columns: Sequence[str], rows_per_batch: int) -> Iterator[RowBatch]:
        """Stream `columns`, at most `rows_per_batch` rows and a bounded number of values at a time."""
        wanted = list(dict.fromkeys(columns))
        with self._open(len(wanted)) as file:
            _require_columns(self.uri, wanted, Counter(file.schema_arrow.names))
            rows = min(rows_per_batch, _rows_at_a_time(self.uri, frozenset(wanted), file.metadata))
            done, limit = 0, None
            while True:
                try:
                    for batch in self._read(file, wanted, rows, done, limit):
                        if batch.num_rows == 1 and count_row_values(batch) > _BATCH_VALUES:
                            raise _unfolding(self.uri, f"row {done}")
                        yield RowBatch(where=self.uri, first_row=done, table=pa.Table.from_batches([batch]))
                        done += batch.num_rows
                    return
                except _TooMuchMemory as error:
                    if rows == 1:
                        raise _unfolding(self.uri, f"row {done}") from error
                    rows, limit = max(1, rows // _FEWER), error.limit
                pa.default_memory_pool().release_unused()  # once the reader, held by the error, is gone

    def _read(
        self, file: pq.ParquetFile, columns: list[str], rows: int, done: int, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows after the first `done`, `rows` at a time; read the first batch within `limit`."""
        group = 0
        while group < file.num_row_groups and done >= file.metadata.row_group(group).num_rows:
            done -= file.metadata.row_group(group).num_rows
            group += 1
        batches = file.iter_batches(
            batch_size=rows,
            row_groups=range(group, file.num_row_groups),
            columns=columns,
            use_threads=len(columns) > 1,
        )
        while (batch := _next(self.uri, batches, limit or _memory_for(len(columns)))) is not None:
            skipped = min(done, batch.num_rows)
            done, limit = done - skipped, None
            for part in split_rows(batch.slice(skipped), _BATCH_VALUES):
                if part.num_rows:
                    yield part

    def count_rows(self) -> int:
        """Return the number of rows that the footer states."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def sha256(self) -> str:
        with _translate_errors(self.uri):
            return self.store.sha256(self.stored.key)

    @contextmanager
    def _open(self, columns: int = 1) -> Iterator[pq.ParquetFile]:
        """Open the file for reading this many columns."""
        with _translate_errors(self.uri):
            stream = self.store.open_file(self.stored.key)
        with closing(stream):
            ahead = min(_READ_AHEAD, _READ_AHEAD_IN_ALL // columns)
            try:
                with _translate_errors(self.uri), limit_memory(memory_in_use() + _FOOTER_GROWTH):
                    # pyarrow's own way of reading ahead keeps all that it has read while the file is open.
                    file = pq.ParquetFile(stream, pre_buffer=False, buffer_size=ahead)
            except MemoryError as error:
                raise _unfolding(self.uri, "the footer") from error
            yield file


@dataclass(frozen=True, kw_only=True)
class ParquetSource:
    """The parquet files that a URI names, in the order of their names."""

    uri: str
    files: tuple[ParquetFile, ...]

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = 1024) -> Iterator[RowBatch]:
        """Stream `columns` of every file, at most `rows_per_batch` rows at a time.

        Raises:
            InvalidRows: a file is not parquet or lacks a column, or there is no row at all.
        """
        empty = True
        for file in self.files:
            for batch in file.batches(columns, rows_per_batch):
                empty = False
                yield batch
        if empty:
            raise InvalidRows(
                f"{self.uri} has no rows", hint="give a parquet file with at least one row", where=self.uri
            )

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the first file's columns."""
        with self.files[0]._open() as file:  # noqa: SLF001  the other half of this module
            return tuple(file.schema_arrow.names)

    def sizes(self) -> tuple[int, ...]:
        """Return the size of each file, in bytes."""
        return tuple(file.stored.size for file in self.files)

    def count_rows(self) -> int:
        """Return the number of rows in all files, as their footers state it."""
        return sum(file.count_rows() for file in self.files)

    def sha256(self, uris: Collection[str] | None = None) -> str:
        """Return one file's digest; for several files, the digest of their list as sha256sum prints it.

        `uris` limits it to the files of these URIs.
        """
        digests = {file.uri: file.sha256() for file in self.files if uris is None or file.uri in uris}
        if len(digests) == 1:
            return next(iter(digests.values()))
        lines = [f"{digest}  {PurePosixPath(uri).name}\n" for uri, digest in digests.items()]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def open_parquet(uri: str) -> ParquetSource:
    """Find the files of `uri`: the URI of a file, of a folder, or a pattern with * ? [ ].

    Commas separate several of one kind of store, as in a config's `train_input_path`.

    Raises:
        InvalidSpec: no store has such a URI, or the URIs are of different stores.
        SourceNotFound: the URI names no file.
        StorageError: the object store refused or could not be reached.
    """
    parts = [part.strip() for part in uri.split(",") if part.strip()]
    if len({_scheme(part) for part in parts}) != 1:
        raise InvalidSpec(f"rows cannot be read from {uri!r}", hint="give one URI, or several of one kind")
    opened = cache(open_store)  # one client for all files of a folder
    return ParquetSource(uri=uri, files=tuple(file for part in parts for file in _expand(part, opened)))


def _scheme(uri: str) -> str:
    return "file" if local_path(uri) is not None else uri.partition("://")[0]


def _expand(uri: str, opened: Callable[[str], ArtifactStore]) -> list[ParquetFile]:
    try:
        folder, name = _split(uri)
        store = opened(folder)
    except InvalidSpec as error:
        problem = f"rows cannot be read from {uri!r}: {error.message}"
        raise InvalidSpec(problem, hint=error.hint, where=uri) from error
    with _translate_errors(uri):
        files = (
            _file(store, name)
            or [file for file in _files_below(store, name) if file.stored.key.endswith(".parquet")]
            or _matching(uri, opened)
        )
    if not files:
        problem = f"{uri} names no parquet file"
        raise SourceNotFound(problem, hint="check the path and its spelling", where=uri)
    return files


def _split(uri: str) -> tuple[str, str]:
    """Split a URI into its folder and the name there, which is empty where the URI is the root of a store."""
    path = local_path(uri)
    root = _without_slash(uri) if path is None else str(path.absolute())
    folder, _, name = root.rpartition("/")
    if name in ("", "..") or folder.endswith("/"):
        return root, ""
    return folder or "/", name


def _without_slash(uri: str) -> str:
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.rstrip('/')}"


def _file(store: ArtifactStore, key: str) -> list[ParquetFile]:
    """Return the file of this key, or nothing where there is no such file."""
    with suppress(SourceNotFound):
        return [ParquetFile(store=store, stored=store.stat(key))] if key else []
    return []


def _files_below(store: ArtifactStore, prefix: str) -> list[ParquetFile]:
    """List the files below a folder, without those that writers keep for themselves (_SUCCESS, .crc)."""
    with suppress(SourceNotFound):
        return [
            ParquetFile(store=store, stored=stored)
            for stored in store.list(prefix, follow_links=True)
            if PurePosixPath(stored.key).name[0] not in "._"
        ]
    return []


def _matching(uri: str, opened: Callable[[str], ArtifactStore]) -> list[ParquetFile]:
    """List the files that match a pattern, whose `*` and `?` match no "/"."""
    folder, name = _split(uri)
    parts = [*folder.rstrip("/").split("/"), name]
    first = next((at for at, part in enumerate(parts) if any(sign in part for sign in _SIGNS)), None)
    if first is None:
        return []
    pattern = PurePosixPath(*parts[first:])
    return [
        file
        for file in _files_below(opened("/".join(parts[:first]) or "/"), "")
        if len((key := PurePosixPath(file.stored.key)).parts) == len(pattern.parts)
        and key.match(str(pattern))
    ]


def _require_columns(path: str, columns: Sequence[str], present: Mapping[str, int]) -> None:
    for column in columns:
        if present.get(column, 0) > 1:
            raise InvalidRows(
                f"{path} has {present[column]} columns {column!r}",
                hint="a feature is read from the column of its name: keep one of them",
                where=path,
            )
        if column not in present:
            has = name_first(present) or "none"
            raise InvalidRows(
                f"{path} has no column {column!r}",
                hint=f"a feature is read from the column of its name; the file has {has}",
                where=path,
            )


def _rows_at_a_time(path: str, columns: Collection[str], footer: pq.FileMetaData) -> int:
    """Return how many rows may be read at once, as far as the footer tells what they unfold to.

    Equal values take almost no room in a file, so a small one could fill the memory.
    """
    if footer.num_columns > MOST_COLUMNS:
        raise InvalidRows(
            f"{path} has {footer.num_columns:,} columns, more than the {MOST_COLUMNS:,} that are read",
            hint="write only the features that the model takes",
            where=path,
        )
    paths = (footer.schema.column(number).path for number in range(footer.num_columns))
    leaves = [number for number, path in enumerate(paths) if _is_within(path, columns)]
    rows = 1 << 62
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        values, size = 0, 0
        for chunk in (group.column(number) for number in leaves):
            if chunk.num_values > MOST_ROW_VALUES * group.num_rows:
                raise InvalidRows(
                    f"{path}, column {chunk.path_in_schema}: {chunk.num_values:,} values in "
                    f"{group.num_rows:,} rows, more than {MOST_ROW_VALUES:,} in each",
                    hint="cut the sequences, as training does",
                    where=path,
                )
            values, size = values + chunk.num_values, size + chunk.total_uncompressed_size
        rows = min(
            rows,
            group.num_rows * _BATCH_VALUES // max(values, 1) if values > _BATCH_VALUES else rows,
            group.num_rows * _BATCH_BYTES // max(size, 1) if size > _BATCH_BYTES else rows,
        )
    return max(1, rows)


def _is_within(leaf: str, columns: Collection[str]) -> bool:
    """Return whether a path in the schema is that of a column or lies within one; names may have dots."""
    parts = leaf.split(".")
    return any(".".join(parts[:count]) in columns for count in range(1, len(parts) + 1))


class _TooMuchMemory(Exception):
    """Reading took more memory than its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


def _next(uri: str, batches: Iterator[pa.RecordBatch], limit: int) -> pa.RecordBatch | None:
    try:
        with _translate_errors(uri), limit_memory(limit):
            return next(batches, None)
    except MemoryError as error:
        raise _TooMuchMemory(limit) from error


def _memory_for(columns: int) -> int:
    """Return the memory that the process may have while it reads a batch of this many columns."""
    growth = _GROWTH + columns * _PAGES + min(columns, int(pa.cpu_count())) * _THREAD
    return memory_in_use() + min(growth, _MOST_GROWTH)


def _unfolding(uri: str, part: str) -> InvalidRows:
    return InvalidRows(
        f"{uri}: {part} unfolds to more than the {_BATCH_VALUES:,} values or {_GROWTH >> 20} MB that are "
        "read at a time",
        hint="cut sequences and texts as training does, and write pages of about 1 MB",
        where=uri,
    )


@contextmanager
def _translate_errors(uri: str) -> Iterator[None]:
    """Turn pyarrow's errors about a file, and denied access to a local file, into InvalidRows."""
    try:
        yield
    except StorageError as error:
        if isinstance(error.__cause__, PermissionError):
            problem = f"{uri} may not be read: {error.message}"
            raise InvalidRows(problem, hint="give read permission", where=uri) from error
        raise
    except MemoryError:
        raise  # pyarrow's is an ArrowException as well
    except (OSError, pa.ArrowException) as error:
        problem = f"{uri} is not a readable parquet file: {str(error).splitlines()[0]}"
        raise InvalidRows(problem, hint="write it again, as parquet", where=uri) from error

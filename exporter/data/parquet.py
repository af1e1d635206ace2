"""Parquet files behind a URI, streamed: a file, a folder or a pattern, on disk or on S3."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from exporter.errors import ExportError, InvalidRows, InvalidSpec, SourceNotFound, StorageError
from exporter.storage.open import local_path

MOST_COLUMNS = 20_000  # of a file
MOST_ROW_VALUES = 1 << 20  # of a column in one row, on average over a group of rows

_CHUNK = 1 << 20  # bytes per read while digesting
_READ_AHEAD = 8 << 20  # bytes of each column, while streaming rows
_ABSENT = {"NO_SUCH_BUCKET", "NO_SUCH_KEY", "RESOURCE_NOT_FOUND"}  # pyarrow's names of what S3 answers
_REFUSED = {
    "ACCESS_DENIED",
    "INVALID_ACCESS_KEY_ID",
    "INVALID_CLIENT_TOKEN_ID",
    "INVALID_SIGNATURE",
    "MISSING_AUTHENTICATION_TOKEN",
    "OPT_IN_REQUIRED",
    "SIGNATURE_DOES_NOT_MATCH",
    "UNRECOGNIZED_CLIENT",
}
_AWS_ERROR = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))?")
_PASSING_STATUS = {"408", "409", "429"}
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Consecutive rows of one file."""

    where: str  # the file
    first_row: int  # place of the first of them in that file, counted from 0
    table: pa.Table


@dataclass(frozen=True, kw_only=True)
class ParquetSource:
    """The parquet files that a URI names, in the order of their names."""

    uri: str
    files: tuple[str, ...]
    filesystem: fs.FileSystem = field(repr=False)

    def batches(self, columns: Sequence[str], *, rows_per_batch: int = 1024) -> Iterator[RowBatch]:
        """Stream `columns` of every file, at most `rows_per_batch` rows at a time.

        Raises:
            InvalidRows: a file is not parquet or lacks a column, or there is no row at all.
        """
        empty = True
        for path in self.files:
            for batch in self._batches_of(path, columns, rows_per_batch):
                empty = False
                yield batch
        if empty:
            raise InvalidRows(
                f"{self.uri} has no rows", hint="give a parquet file with at least one row", where=self.uri
            )

    def sizes(self) -> tuple[int, ...]:
        """The bytes of each file."""
        found = _attempt(self.uri, lambda: self.filesystem.get_file_info(list(self.files)))
        return tuple(int(info.size) for info in found)

    def count_rows(self) -> int:
        """The rows of all files, as their footers say."""
        return sum(self._rows_of(path) for path in self.files)

    def sha256(self, files: Sequence[str] | None = None) -> str:
        """The digest of one file; of several, the digest of their list as sha256sum prints it."""
        digests = {path: self._sha256_of(path) for path in files or self.files}
        if len(digests) == 1:
            return next(iter(digests.values()))
        lines = [f"{digest}  {PurePosixPath(path).name}\n" for path, digest in digests.items()]
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def _batches_of(self, path: str, columns: Sequence[str], rows_per_batch: int) -> Iterator[RowBatch]:
        with closing(_attempt(path, lambda: self.filesystem.open_input_file(path))) as stream:
            # pyarrow's own way of reading ahead keeps all that it has read for as long as the file is open.
            file = _attempt(path, lambda: pq.ParquetFile(stream, pre_buffer=False, buffer_size=_READ_AHEAD))
            _require_columns(path, columns, Counter(file.schema_arrow.names))
            _refuse_unfolding(path, columns, file.metadata)
            batches = file.iter_batches(batch_size=rows_per_batch, columns=list(columns))
            first_row = 0
            while (batch := _attempt(path, lambda: next(batches, None))) is not None:
                if batch.num_rows:
                    yield RowBatch(where=path, first_row=first_row, table=pa.Table.from_batches([batch]))
                first_row += batch.num_rows

    def _rows_of(self, path: str) -> int:
        with closing(_attempt(path, lambda: self.filesystem.open_input_file(path))) as stream:
            return int(_attempt(path, lambda: pq.ParquetFile(stream).metadata.num_rows))

    def _sha256_of(self, path: str) -> str:
        digest = hashlib.sha256()
        with closing(_attempt(path, lambda: self.filesystem.open_input_stream(path))) as stream:
            while chunk := _attempt(path, lambda: stream.read(_CHUNK)):
                digest.update(chunk)
        return digest.hexdigest()


def open_parquet(uri: str) -> ParquetSource:
    """Find the files of `uri`: a path, file:// or s3:// of a file, a folder, or a pattern with * ? [ ].

    Commas separate several, as in a config's `train_input_path`. S3 takes its endpoint and credentials
    from the variables AWS clients know.

    Raises:
        SourceNotFound: the URI names no file.
        StorageError: the object store refused or could not be reached.
    """
    parts = [part.strip() for part in uri.split(",") if part.strip()]
    if not parts or len({part.partition("://")[0] for part in parts if "://" in part}) > 1:
        raise InvalidSpec(f"rows cannot be read from {uri!r}", hint="give one URI, or several of one kind")
    filesystem = _filesystem(parts[0])
    files = tuple(path for part in parts for path in _expand(part, filesystem))
    return ParquetSource(uri=uri, files=files, filesystem=filesystem)


def _filesystem(uri: str) -> fs.FileSystem:
    if local_path(uri) is not None:
        return fs.LocalFileSystem()
    scheme, _, rest = uri.partition("://")
    if scheme == "s3":
        # from_uri, unlike the constructor, honours AWS_ENDPOINT_URL and finds a bucket's region.
        bucket = f"s3://{rest.partition('/')[0]}"
        return _attempt(uri, lambda: fs.FileSystem.from_uri(bucket)[0])
    raise InvalidSpec(
        f"rows cannot be read from {scheme}:// ({uri})", hint="use a local path, file:// or s3://", where=uri
    )


def _path(uri: str) -> str:
    path = local_path(uri)
    return uri.partition("://")[2].rstrip("/") if path is None else str(path.absolute())


def _expand(uri: str, filesystem: fs.FileSystem) -> list[str]:
    path = _path(uri)
    found = _attempt(uri, lambda: filesystem.get_file_info(path))
    if found.type == fs.FileType.File:
        return [path]
    if found.type == fs.FileType.Directory:
        below = _attempt(uri, lambda: _files_below(filesystem, path))
        paths = [file for file in below if file.endswith(".parquet")]
    else:
        paths = _attempt(uri, lambda: _matching(filesystem, PurePosixPath(path)))
    if not paths:
        problem = f"{uri} names no parquet file"
        raise SourceNotFound(problem, hint="check the path and its spelling", where=uri)
    return paths


def _matching(filesystem: fs.FileSystem, pattern: PurePosixPath) -> list[str]:
    fixed = PurePosixPath()
    for part in pattern.parts:
        if any(sign in part for sign in "*?["):
            break
        fixed /= part
    if fixed == pattern:
        return []
    depth = len(pattern.parts)
    return [
        path
        for path in _files_below(filesystem, str(fixed))
        if len(PurePosixPath(path).parts) == depth and PurePosixPath(path).match(str(pattern))
    ]


def _files_below(filesystem: fs.FileSystem, folder: str) -> list[str]:
    """Files below a folder by name, without those that writers keep for themselves (_SUCCESS, .crc)."""
    selector = fs.FileSelector(folder, recursive=True, allow_not_found=True)
    return sorted(
        info.path
        for info in filesystem.get_file_info(selector)
        if info.type == fs.FileType.File and info.base_name[0] not in "._"
    )


def _require_columns(path: str, columns: Sequence[str], present: Mapping[str, int]) -> None:
    for column in columns:
        if present.get(column, 0) > 1:
            raise InvalidRows(
                f"{path} has {present[column]} columns {column!r}",
                hint="a feature is read from the column of its name: keep one of them",
                where=path,
            )
        if column not in present:
            has = ", ".join(present) or "none"
            raise InvalidRows(
                f"{path} has no column {column!r}",
                hint=f"a feature is read from the column of its name; the file has {has}",
                where=path,
            )


def _refuse_unfolding(path: str, columns: Sequence[str], footer: pq.FileMetaData) -> None:
    """Refuse a file of a few bytes that would fill the memory: values that are equal take no room in it."""
    if footer.num_columns > MOST_COLUMNS:
        raise InvalidRows(
            f"{path} has {footer.num_columns:,} columns, more than the {MOST_COLUMNS:,} that are read",
            hint="write the features that the model takes",
            where=path,
        )
    wanted = set(columns)
    for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
        for chunk in (group.column(number) for number in range(group.num_columns)):
            if (
                chunk.path_in_schema.partition(".")[0] in wanted
                and chunk.num_values > MOST_ROW_VALUES * group.num_rows
            ):
                raise InvalidRows(
                    f"{path}, column {chunk.path_in_schema}: {chunk.num_values:,} values in "
                    f"{group.num_rows:,} rows, more than {MOST_ROW_VALUES:,} in each",
                    hint="cut the sequences, as training does",
                    where=path,
                )


def _attempt(path: str, read: Callable[[], _T]) -> _T:
    """Read, and translate what pyarrow raises."""
    try:
        return read()
    except (OSError, pa.ArrowException) as error:
        raise _explain(path, error) from error


def _explain(path: str, error: Exception) -> ExportError:
    text = str(error).splitlines()[0]
    if isinstance(error, FileNotFoundError):
        return SourceNotFound(f"{path} does not exist", hint="check the path and its spelling", where=path)
    if answer := _AWS_ERROR.search(text):
        return _explain_s3(path, text, name=answer[1], status=answer[2] or "")
    if isinstance(error, PermissionError):
        return InvalidRows(f"{path} may not be read: {text}", hint="give read permission", where=path)
    return InvalidRows(
        f"{path} is not a readable parquet file: {text}", hint="write it again, as parquet", where=path
    )


def _explain_s3(path: str, text: str, *, name: str, status: str) -> ExportError:
    if name in _ABSENT or status == "404":
        return SourceNotFound(f"{path} does not exist", hint="check the path and its spelling", where=path)
    if name in _REFUSED or (status.startswith("4") and status not in _PASSING_STATUS):
        return StorageError(
            f"{path} cannot be read: {text}",
            hint="check the credentials and what they allow",
            where=path,
            retryable=False,
        )
    return StorageError(
        f"{path} cannot be read: {text}", hint="check the endpoint, credentials and network", where=path
    )

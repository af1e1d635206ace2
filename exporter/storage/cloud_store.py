"""The common half of stores in a bucket: providers differ in their protocols, not in what a store promises.

A file is read by ranges of one version, and a key is written only if there is none.
"""

import re
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from datetime import timedelta
from functools import partial
from io import SEEK_SET, BytesIO
from typing import BinaryIO, ClassVar, cast
from uuid import uuid4

from exporter.errors import AlreadyPublished, ExportError, InvalidSpec, SourceNotFound, StorageError
from exporter.redaction import redact
from exporter.storage.range_reader import RangeReader
from exporter.storage.store import (
    CHUNK_SIZE,
    ArtifactStore,
    OnSent,
    Permission,
    StoredFile,
    always,
    as_permitted,
    check_key,
    check_prefix,
    count_listed,
    ignore_sent,
)

PART_SIZE = 32 << 20  # bytes; larger files are uploaded in parts, one of which is held in memory
CONNECT_S, ANSWER_S = 10.0, 60.0  # seconds for a connection, and for each read of an answer

TRIES = 5  # of an answer that ends too early
_PAUSE_S = 0.5  # before the second of `TRIES`; half a second more before each further one
_RANGE = 16 << 20  # bytes that `chunks` asks for at once
_RETRYABLE_STATUS = {408, 429}


class CloudStore(ArtifactStore):
    """Stores files below a prefix of a bucket; a provider's subclass sends the requests."""

    scheme: ClassVar[str]

    def __init__(self, bucket: str, prefix: str = "", *, part_size: int | None = None) -> None:
        self._bucket = bucket
        self._root = f"{prefix}/" if prefix else ""
        self._part_size = part_size or PART_SIZE

    @abstractmethod
    def _describe(self, path: str, key: str) -> StoredFile:
        """Ask for size, version and token of the object at a path."""

    @abstractmethod
    def _read_once(self, path: str, start: int, end: int, version: str) -> bytes:
        """Read a range of one version of an object; a broken connection may leave it short."""

    @abstractmethod
    def _list_below(self, prefix: str) -> Iterator[tuple[str, int, str]]:
        """Yield path, size and version of every object whose path begins with the prefix."""

    @abstractmethod
    def _create(self, path: str, source: BinaryIO, size: int, token: str, within: timedelta | None) -> None:
        """Write an object unless there is one; with `within` in one try that takes no longer."""

    @abstractmethod
    def _remove(self, path: str, within: timedelta | None) -> None:
        """Delete an object; raise SourceNotFound if there is none."""

    @abstractmethod
    def _translate_errors(self, uri: str) -> AbstractContextManager[None]:
        """Convert the library's errors on `uri` into the exporter's errors."""

    def uri_of(self, key: str) -> str:
        return f"{self.scheme}://{self._bucket}/{self._root}{key}".rstrip("/")

    def stat(self, key: str) -> StoredFile:
        with self._translate_errors(self.uri_of(key)):
            return self._describe(self._path(key), key)

    def chunks(self, key: str) -> Iterator[bytes]:
        found = self.stat(key)
        for start in range(0, found.size, _RANGE):
            part = self._read_range(key, found.version, start, min(start + _RANGE, found.size))
            yield from (part[at : at + CHUNK_SIZE] for at in range(0, len(part), CHUNK_SIZE))

    def open_file(self, key: str) -> BinaryIO:
        found = self.stat(key)
        return cast("BinaryIO", RangeReader(partial(self._read_range, key, found.version), found.size))

    def _read_range(self, key: str, version: str, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`; ask again where fewer of them come."""
        uri, data = self.uri_of(key), b""
        for tries_left in reversed(range(TRIES)):
            with self._translate_errors(uri):
                data = self._read_once(self._path(key), start, end, version)
            if len(data) == end - start:
                return data
            if tries_left:
                pause_before(tries_left)
        problem = f"{uri}: {len(data)} bytes came where {end - start} were asked for, from {start} on"
        raise StorageError(problem, hint="try again", where=uri)

    def list(self, prefix: str = "", *, follow_links: bool = False) -> tuple[StoredFile, ...]:
        uri, root = self.uri_of(prefix), self._root
        with self._translate_errors(uri):
            found = (
                StoredFile(key=path.removeprefix(root), size=size, version=version)
                for path, size, version in count_listed(self._list_below(self._folder(prefix)), uri)
                if not path.endswith("/")  # markers that some programs leave for folders
            )
            return tuple(sorted(found))

    def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
        if self.exists(key):  # saves the upload of a large file; the condition on the write decides
            raise already_published(self.uri_of(key))
        token, reporting = uuid4().hex, _Reporting(source, on_sent)
        try:
            with self._translate_errors(self.uri_of(key)):
                self._create(self._path(key), cast("BinaryIO", reporting), size, token, None)
        except (AlreadyPublished, SourceNotFound):
            # The library repeats a request whose answer was lost; the second finds that the object exists, or
            # that the upload is gone, because the first one succeeded.
            if not self.exists(key) or self.stat(key).token != token:
                raise
        reporting.report(size)

    def put_bytes(self, data: bytes, key: str, *, within: timedelta | None = None) -> None:
        if within is None:
            return super().put_bytes(data, key)
        with self._translate_errors(self.uri_of(key)):
            self._create(self._path(key), BytesIO(data), len(data), uuid4().hex, within)
        return None

    def delete(self, key: str, permission: Permission = always) -> None:
        path = self._path(key)

        def remove(within: timedelta | None) -> None:
            with suppress(SourceNotFound), self._translate_errors(self.uri_of(key)):
                self._remove(path, within)

        as_permitted(permission, remove)

    def delete_prefix(self, prefix: str, permission: Permission = always) -> None:
        """Delete the files of a folder; unfinished uploads are no objects, and the provider ends them."""
        for file in self.list(check_key(prefix)):
            self.delete(file.key, permission)

    def _path(self, key: str) -> str:
        return self._root + check_key(key)

    def _folder(self, prefix: str) -> str:
        return f"{self._path(prefix)}/" if check_prefix(prefix) else self._root


class _Reporting:
    """A source that reports how far it has been read, before each further part: then the last one was sent.

    A part that has to be sent again is not reported again.
    """

    def __init__(self, source: BinaryIO, on_sent: OnSent) -> None:
        self._source, self._on_sent, self._reported = source, on_sent, 0

    def read(self, size: int = -1) -> bytes:
        self.report(self._source.tell())
        return self._source.read(size)

    def tell(self) -> int:
        return self._source.tell()

    def seek(self, offset: int, whence: int = SEEK_SET) -> int:
        return self._source.seek(offset, whence)

    def report(self, sent: int) -> None:
        if sent > self._reported:
            more, self._reported = sent - self._reported, sent
            self._on_sent(more)


def split_bucket(uri: str, scheme: str, names: re.Pattern[str]) -> tuple[str, str]:
    """Split a URI into bucket and prefix; refuse a name that no bucket has, which might lead elsewhere."""
    bucket, _, prefix = uri.removeprefix(f"{scheme}://").partition("/")
    if not uri.startswith(f"{scheme}://") or not names.fullmatch(bucket):
        hint = f"write {scheme}://bucket/prefix; a bucket's name has lower-case letters, digits and hyphens"
        raise InvalidSpec(f"{uri!r} names no bucket", hint=hint, where=uri)
    return bucket, check_prefix(prefix.rstrip("/"))


def pause_before(tries_left: int) -> None:
    """Wait before the next of `TRIES`: longer before each further one."""
    time.sleep(_PAUSE_S * (TRIES - tries_left))


def already_published(uri: str) -> AlreadyPublished:
    return AlreadyPublished(f"{uri} exists; a key is never overwritten", where=uri)


def replaced(uri: str) -> StorageError:
    return StorageError(f"{uri} was replaced while it was read", hint="try again", where=uri)


def refused(uri: str, status: int, text: str) -> ExportError:
    """Return the exporter's error for an answer with this HTTP status."""
    if status == 404:
        return SourceNotFound(f"there is no {uri}", where=uri)
    retryable = status >= 500 or status in _RETRYABLE_STATUS
    hint = "check the credentials and what they allow" if status in (401, 403) else ""
    return StorageError(f"{uri}: {redact(text)}", hint=hint, where=uri, retryable=retryable)


def unreachable(uri: str, error: Exception, *, retryable: bool = True) -> StorageError:
    return StorageError(f"{uri}: {redact(str(error))}", where=uri, retryable=retryable)


def not_installed(scheme: str, error: ImportError) -> InvalidSpec:
    return InvalidSpec(
        f"{scheme}:// needs {error.name}, which is not installed",
        hint=f"install it with: pip install 'slipway[{scheme}]'",
        where=f"{scheme}://",
    )

"""The interface that every artifact store implements, and the keys of files in a store."""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

from exporter.errors import SourceNotFound, StorageError

CHUNK_SIZE = 1 << 20  # bytes held at a time while a file is copied or digested
READ_LIMIT = 16 << 20  # bytes `read` takes into memory unless told otherwise

OnSent = Callable[[int], None]  # bytes sent since the last call
# Waits for the right to write; may tell how long it lasts from then on.
Permission = Callable[[], timedelta | None]


@dataclass(frozen=True, kw_only=True, order=True)
class StoredFile:
    """One file of a store."""

    key: str
    size: int  # bytes
    version: str = field(default="", compare=False)  # another one after every change: entity tag or time
    token: str = field(default="", compare=False)  # of the write that made it; only `stat` tells, if any does


def ignore_sent(count: int) -> None:
    """Drop the count: the listener of callers that do not report progress."""


def always() -> None:
    """The permission of who needs none."""


class ArtifactStore(Protocol):
    """Files below one URI, each by its key: relative, "/" between names, never leaving that URI.

    A key is written once. Every error names the URI: SourceNotFound, AlreadyPublished or StorageError.
    """

    @abstractmethod
    def uri_of(self, key: str) -> str:
        """The URI under which `open_store` and `split_uri` find this key again; of "" the store's own."""

    def require_writable(self) -> None:
        """StorageError, if it is plain without a try that nothing can be written here."""
        return

    @abstractmethod
    def stat(self, key: str) -> StoredFile: ...

    @abstractmethod
    def chunks(self, key: str) -> Iterator[bytes]:
        """The file's bytes in order, a bounded piece at a time."""

    @abstractmethod
    def open_file(self, key: str) -> BinaryIO:
        """Open a file to be read at any position, without copying all of it here; the caller closes it."""

    @abstractmethod
    def list(self, prefix: str = "") -> tuple[StoredFile, ...]:
        """Every file below a folder, sorted by key; none where there is no such folder."""

    @abstractmethod
    def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
        """Store `size` bytes of `source`, whole or not at all; a key that exists is AlreadyPublished."""

    @abstractmethod
    def delete(self, key: str, permission: Permission = always) -> None:
        """Remove a file of an unfinished artifact; one that is not there is fine.

        `permission` is asked before each try, none of which is waited for longer than it lasts.
        """

    @abstractmethod
    def delete_prefix(self, prefix: str, permission: Permission = always) -> None:
        """Remove a folder of an unfinished artifact, uploads that never ended included; as `delete`."""

    def link(self, key: str, lifetime: timedelta, endpoint: str | None = None) -> str | None:
        """A URL from which anybody can read the file for a while; None where the store has no such.

        It leads to `endpoint` where callers reach the store under another URL than this program does.
        """
        return None

    def size(self, key: str) -> int:
        return self.stat(key).size

    def exists(self, key: str) -> bool:
        try:
            self.stat(key)
        except SourceNotFound:
            return False
        return True

    def read(self, key: str, *, limit: int = READ_LIMIT) -> bytes:
        """A small file's bytes; one of more than `limit` bytes is refused."""
        data = bytearray()
        for chunk in self.chunks(key):
            data += chunk
            if len(data) > limit:
                raise StorageError(f"{self.uri_of(key)} holds more than {limit} bytes", retryable=False)
        return bytes(data)

    def sha256(self, key: str) -> str:
        """The digest of what the store holds now, read back from it."""
        digest = hashlib.sha256()
        for chunk in self.chunks(key):
            digest.update(chunk)
        return digest.hexdigest()

    def fetch(self, key: str, local: Path) -> None:
        """Copy a file here; `local` appears whole or not at all."""
        partial = local.with_name(local.name + ".partial")
        try:
            local.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                for chunk in self.chunks(key):
                    file.write(chunk)
            partial.replace(local)
        except OSError as error:
            raise StorageError(
                f"{local} could not be written: {error.strerror}",
                hint="make room there, or set TMPDIR to a folder with more",
                where=str(local),
            ) from error
        finally:
            partial.unlink(missing_ok=True)

    def put(self, local: Path, key: str, on_sent: OnSent = ignore_sent) -> None:
        """Store a local file under a key that does not exist yet."""
        try:
            with local.open("rb") as source:
                self.write(source, os.fstat(source.fileno()).st_size, key, on_sent)
        except OSError as error:
            raise StorageError(f"{local} could not be read: {error}", where=str(local)) from error

    def put_bytes(self, data: bytes, key: str, *, within: timedelta | None = None) -> None:
        """Store a small file under a key that does not exist yet.

        With `within`, by one request that is given up after so long; it may have been followed all the same.
        """
        self.write(BytesIO(data), len(data), key)


def join_uri(uri: str, key: str) -> str:
    return f"{uri.rstrip('/')}/{check_key(key)}"


def check_key(key: str) -> str:
    """The key itself, if it stays below the store's root."""
    if "\0" in key or any(name in ("", ".", "..") for name in key.split("/")):
        raise StorageError(f"{key!r} is no key: it could leave its folder", where=key, retryable=False)
    return key


def check_prefix(prefix: str) -> str:
    """The prefix itself, if it is empty or stays below the store's root."""
    return prefix and check_key(prefix)

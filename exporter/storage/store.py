"""The interface of all artifact stores, and the rules for keys of files in a store."""

import hashlib
import os
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from exporter.errors import SourceNotFound, StorageError

CHUNK_SIZE = 1 << 20  # bytes held at a time while a file is copied or digested
MOST_FILES = 1_000_000  # in one folder of a remote store; a list that goes on is taken for one without end
READ_LIMIT = 16 << 20  # bytes that `read` takes into memory by default

_TRIES = 5  # of an act that needs a new permission for each
_PAUSE_S = 0.5  # seconds before the second of `_TRIES`; half a second more before each further one

T = TypeVar("T")
OnSent = Callable[[int], None]  # takes the number of bytes sent since the last call
# Waits until the caller may write, and returns how long it may from then on; None: for as long as it likes.
Permission = Callable[[], timedelta | None]


@dataclass(frozen=True, kw_only=True, order=True)
class StoredFile:
    """One file of a store."""

    key: str
    size: int  # bytes
    # Differs after every change: entity tag or modification time.
    version: str = field(default="", compare=False)
    # Identifies the write that created the file; set by `stat`, in stores that keep it.
    token: str = field(default="", compare=False)
    # Of the bytes that the store returned after the upload; "" where they were not read.
    sha256: str = field(default="", compare=False)


def ignore_sent(count: int) -> None:
    """Drop the count: the callback of callers that do not report progress."""


def always() -> None:
    """Permit every write: for callers that hold no lease."""


class ArtifactStore(Protocol):
    """Files below one URI, each under a key: a relative path with "/" between names, without "." and "..".

    A key is written once. Every error names the URI: SourceNotFound, AlreadyPublished or StorageError.
    """

    @abstractmethod
    def uri_of(self, key: str) -> str:
        """Return the URI of a key, which `split_uri` and `open_store` accept; for "" that of the store."""

    def require_writable(self) -> None:
        """Raise StorageError if a write here is sure to fail, as far as this is known without writing."""
        return

    @abstractmethod
    def stat(self, key: str) -> StoredFile:
        """Return the size and version of a file."""

    @abstractmethod
    def chunks(self, key: str) -> Iterator[bytes]:
        """Yield the bytes of a file in order, at most `CHUNK_SIZE` at a time."""

    @abstractmethod
    def open_file(self, key: str) -> BinaryIO:
        """Open a file for reading at any position, without a copy of all of it; the caller closes it."""

    @abstractmethod
    def list(self, prefix: str = "", *, follow_links: bool = False) -> tuple[StoredFile, ...]:
        """Return every file below a folder, sorted by key; nothing if there is no such folder.

        With `follow_links`, linked folders below it are listed as well, where a store has links. Only readers
        ask for that: whoever deletes what is listed must not be led to another folder.
        """

    @abstractmethod
    def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
        """Store `size` bytes of `source`, all or nothing; raise AlreadyPublished for a key that exists."""

    @abstractmethod
    def delete(self, key: str, permission: Permission = always) -> None:
        """Delete a file of an unfinished artifact, if it exists.

        `permission` is asked before each try, and no try outlasts the time that it grants.
        """

    @abstractmethod
    def delete_prefix(self, prefix: str, permission: Permission = always) -> None:
        """Delete a folder of an unfinished artifact and its incomplete uploads; asks as `delete` does."""

    def link(self, key: str, lifetime: timedelta, endpoint: str | None = None) -> str | None:
        """Return a URL by which anybody can read the file for `lifetime`; None if the store has no such URLs.

        `endpoint` is the store's URL for callers, if they reach it under another one than this program.
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
        """Return the bytes of a small file; raise StorageError if it holds more than `limit` bytes."""
        data = bytearray()
        for chunk in self.chunks(key):
            data += chunk
            if len(data) > limit:
                raise StorageError(f"{self.uri_of(key)} holds more than {limit} bytes", retryable=False)
        return bytes(data)

    def sha256(self, key: str) -> str:
        """Return the digest of the file, read back from the store."""
        digest = hashlib.sha256()
        for chunk in self.chunks(key):
            digest.update(chunk)
        return digest.hexdigest()

    def fetch(self, key: str, local: Path) -> None:
        """Copy a file to the path `local`, which appears whole or not at all."""
        check_key(key)  # before anything is made for it: `local` often ends in the key, as a bucket listed it
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

        With `within`, send a single request and give it up after that time; the store may have carried it
        out all the same.
        """
        self.write(BytesIO(data), len(data), key)


def count_listed(entries: Iterable[T], uri: str) -> Iterator[T]:
    """Yield what a store lists; raise StorageError where it lists more than `MOST_FILES`."""
    for count, entry in enumerate(entries):
        if count == MOST_FILES:
            problem = f"{uri} lists more than {MOST_FILES:,} files"
            raise StorageError(problem, hint="name a folder with fewer files", where=uri, retryable=False)
        yield entry


def as_permitted(permission: Permission, act: Callable[[timedelta | None], object]) -> None:
    """Ask for permission before each try of `act`, which gets the time that it may take.

    Where that has no end, `act` repeats its requests itself, and is called once.
    """
    for left in reversed(range(_TRIES)):
        within = permission()
        try:
            act(within)
            return
        except StorageError as error:
            if within is None or not error.retryable or not left:
                raise
        time.sleep(_PAUSE_S * (_TRIES - left))


def join_uri(uri: str, key: str) -> str:
    """Return the URI of a key below a folder's URI."""
    return f"{uri.rstrip('/')}/{check_key(key)}"


def check_key(key: str) -> str:
    """Return the key; raise StorageError if it could leave the store's root."""
    if "\0" in key or any(name in ("", ".", "..") for name in key.split("/")):
        raise StorageError(f"{key!r} is no key: it could leave its folder", where=key, retryable=False)
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix; raise StorageError if it could leave the store's root. It may be empty."""
    return prefix and check_key(prefix)

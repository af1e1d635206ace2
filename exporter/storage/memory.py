"""A store in memory, for tests of code that uses a store."""

from collections.abc import Iterator
from io import BytesIO
from typing import BinaryIO

from exporter.errors import AlreadyPublished, SourceNotFound
from exporter.storage.store import (
    CHUNK_SIZE,
    ArtifactStore,
    OnSent,
    Permission,
    StoredFile,
    always,
    check_key,
    check_prefix,
    ignore_sent,
)


class MemoryStore(ArtifactStore):
    """Stores files in a dict, which is lost with the object."""

    def __init__(self, uri: str = "memory://store") -> None:
        self._uri = uri
        self._files: dict[str, bytes] = {}

    def uri_of(self, key: str) -> str:
        return f"{self._uri}/{key}" if key else self._uri

    def stat(self, key: str) -> StoredFile:
        return StoredFile(key=key, size=len(self._data(key)))

    def chunks(self, key: str) -> Iterator[bytes]:
        data = self._data(key)
        return (data[start : start + CHUNK_SIZE] for start in range(0, len(data), CHUNK_SIZE))

    def open_file(self, key: str) -> BinaryIO:
        return BytesIO(self._data(key))

    def list(self, prefix: str = "", *, follow_links: bool = False) -> tuple[StoredFile, ...]:
        folder = check_prefix(prefix) and prefix + "/"
        keys = sorted(key for key in self._files if key.startswith(folder))
        return tuple(StoredFile(key=key, size=len(self._files[key])) for key in keys)

    def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
        if check_key(key) in self._files:
            raise AlreadyPublished(f"{self.uri_of(key)} exists; a key is never overwritten")
        self._files[key] = source.read()
        on_sent(size)

    def delete(self, key: str, permission: Permission = always) -> None:
        permission()
        self._files.pop(check_key(key), None)

    def delete_prefix(self, prefix: str, permission: Permission = always) -> None:
        for file in self.list(check_key(prefix)):
            self.delete(file.key, permission)

    def _data(self, key: str) -> bytes:
        try:
            return self._files[check_key(key)]
        except KeyError:
            raise SourceNotFound(f"there is no {self.uri_of(key)}", where=self.uri_of(key)) from None

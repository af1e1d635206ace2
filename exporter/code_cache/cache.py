"""Cache of compiled code shared by exports, in a folder or below an object-store prefix.

A cache never fails an export: an unreadable entry is a miss, and an entry that cannot be written is dropped.
It holds native code, which every worker with a cache hit runs, so only trusted writers may have access to it.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from exporter.aoti.code import ProgramCode
from exporter.code_cache.entry import LAYOUT, pack_entry, unpack_entry
from exporter.errors import AlreadyPublished, ExportError, SourceNotFound
from exporter.spec import Frozen
from exporter.storage.open import local_path, open_store
from exporter.storage.store import ArtifactStore

LIMIT = 2 << 30  # bytes of all files in a folder
_LARGEST = 512 << 20  # bytes of one entry

log = logging.getLogger(__name__)


class RequestFile(Frozen):
    """requests/<key>.json: the fingerprints of the graphs that a request was traced to."""

    layout: int
    key: str = ""  # of the request: a file of another one, under this name, is none
    fingerprints: tuple[str, ...]


class CodeCache:
    """Code by the fingerprint of its graph, and the fingerprints by the key of a request.

    A folder is kept below `limit` bytes by removing the least recently used files. An object store is not;
    give its prefix a lifecycle rule that expires old objects.
    """

    def __init__(self, store: ArtifactStore, folder: Path | None, *, limit: int = LIMIT) -> None:
        """Keep entries in `store`; `folder` is its path if it is a folder of this machine, else None."""
        self._store = store
        self._folder = folder
        self._limit = limit
        self.dropped: list[str] = []  # entries that could not be used and were removed, and why

    def find_request(self, key: str) -> tuple[ProgramCode, ...]:
        """Return the code of every part of a request, or nothing unless all parts are there."""
        data = self._read(_request_name(key))
        if data is None:
            return ()
        try:
            request = RequestFile.model_validate_json(data)
        except ValidationError:
            self._drop(_request_name(key), "it is damaged")
            return ()
        if request.key != key:
            self._drop(_request_name(key), f"it is of request {request.key[:12] or 'unknown'}")
            return ()
        found = (
            [self.find_graph(each) for each in request.fingerprints] if request.layout == LAYOUT else [None]
        )
        return tuple(each for each in found if each is not None) if None not in found else ()

    def find_graph(self, fingerprint: str) -> ProgramCode | None:
        """Return the code of a graph; None if there is none or its entry is damaged."""
        data = self._read(_entry_name(fingerprint))
        if data is None:
            return None
        code = unpack_entry(data, fingerprint)
        if code is None:  # as keys are written once, it would block a sound entry
            self._drop(_entry_name(fingerprint), "it is damaged, or of another graph")
        return code

    def store(self, key: str, codes: Sequence[ProgramCode]) -> None:
        """Store the code of a request, which must have passed the gate."""
        for code in codes:
            self._write(_entry_name(code.fingerprint), pack_entry(code))
        request = RequestFile(layout=LAYOUT, key=key, fingerprints=tuple(code.fingerprint for code in codes))
        if self._read(_request_name(key)) != (data := request.model_dump_json().encode()):
            self._remove(_request_name(key))
            self._write(_request_name(key), data)
        self._remove_oldest()

    def remove(self, key: str, codes: Sequence[ProgramCode]) -> None:
        """Remove a request and its code, which turned out to be wrong."""
        for name in (_request_name(key), *(_entry_name(code.fingerprint) for code in codes)):
            self._remove(name)

    def _drop(self, name: str, why: str) -> None:
        self.dropped.append(f"{name[:30]}…: {why}")
        self._remove(name)

    def _read(self, name: str) -> bytes | None:
        with _log_failures("read"):
            try:
                data = self._store.read(name, limit=_LARGEST)
            except SourceNotFound:
                return None
            if self._folder is not None:
                os.utime(self._folder / name, follow_symlinks=False)  # marks it as used now
            return data
        return None

    def _write(self, name: str, data: bytes) -> None:
        with _log_failures("write"):
            try:
                self._store.put_bytes(data, name)
            except AlreadyPublished:  # another export was faster; its code is equivalent
                return

    def _remove(self, name: str) -> None:
        with _log_failures("remove"):
            self._store.delete(name)

    def _remove_oldest(self) -> None:
        if self._folder is None:
            return
        with _log_failures("shrink"):
            files = sorted(self._store.list(), key=lambda file: int(file.version))  # by time of last use
            excess = sum(file.size for file in files) - self._limit
            for file in files:
                if excess <= 0:
                    break
                self._store.delete(file.key)
                excess -= file.size


def open_code_cache(uri: str, *, limit: int = LIMIT) -> CodeCache:
    """Open the cache at a URI; a new folder is created with access for its owner only."""
    folder = local_path(uri)
    if folder is not None:
        with _log_failures("create"):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return CodeCache(open_store(uri), folder, limit=limit)


def _request_name(key: str) -> str:
    return f"requests/{key}.json"


def _entry_name(fingerprint: str) -> str:
    return f"code/{fingerprint}.zip"


@contextmanager
def _log_failures(doing: str) -> Iterator[None]:
    try:
        yield
    except (ExportError, OSError) as error:
        log.warning("code_cache_failed", extra={"doing": doing, "reason": str(error)})

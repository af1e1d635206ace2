"""A store in a folder of this machine."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from exporter.errors import AlreadyPublished, SourceNotFound, StorageError
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

_ZEROS = bytes(CHUNK_SIZE)
_UNFINISHED = ".unfinished"  # suffix of a file that is being written; such files are not listed
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}  # the answers of FAT and of some FUSE file systems
_PERMANENT = {errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP}  # errors that another try cannot help


class LocalStore(ArtifactStore):
    """Stores files below a folder; subfolders come and go with their files, as in an object store."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def uri_of(self, key: str) -> str:
        return str(self._root / key)

    def require_writable(self) -> None:
        nearest = next(path for path in (self._root, *self._root.parents) if os.path.lexists(path))
        if not nearest.is_dir():
            raise StorageError(
                f"nothing can be written to {self._root}: {nearest} is no folder",
                hint="choose another place",
                where=str(self._root),
                retryable=False,
            )
        if not os.access(
            nearest, os.W_OK | os.X_OK, effective_ids=True
        ):  # also false on a file system that is mounted read-only
            raise StorageError(
                f"nothing can be written to {self._root}: {nearest} is read-only",
                hint="check the folder's permissions, or choose another place",
                where=str(self._root),
                retryable=False,
            )

    def stat(self, key: str) -> StoredFile:
        path = self._path(key)
        with translate_errors(path):
            _stat_of_file(path)
            return self._describe(path)

    def chunks(self, key: str) -> Iterator[bytes]:
        path = self._path(key)
        with translate_errors(path), _open_regular(path) as file:
            while chunk := file.read(CHUNK_SIZE):
                yield chunk

    def open_file(self, key: str) -> BinaryIO:
        path = self._path(key)
        with translate_errors(path):
            return _open_regular(path)

    def list(self, prefix: str = "", *, follow_links: bool = False) -> tuple[StoredFile, ...]:
        folder = self._root / check_prefix(prefix)
        if not folder.is_dir():
            return ()
        with translate_errors(folder):
            return tuple(sorted(self._describe(path) for path in _files_below(folder, follow_links)))

    def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
        target = self._path(key)
        unfinished = target.with_name(f".{target.name}.{secrets.token_hex(8)}{_UNFINISHED}")
        with translate_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                _copy(source, unfinished, on_sent)
                publish(unfinished, target)
            finally:
                unfinished.unlink(missing_ok=True)

    def delete(self, key: str, permission: Permission = always) -> None:
        path = self._path(key)
        permission()
        with translate_errors(path):
            path.unlink(missing_ok=True)
            self._remove_empty_folders(path.parent)

    def delete_prefix(self, prefix: str, permission: Permission = always) -> None:
        folder = self._path(prefix)
        if not folder.is_dir():
            return
        permission()
        with translate_errors(folder):
            shutil.rmtree(folder)
            self._remove_empty_folders(folder.parent)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _describe(self, path: Path) -> StoredFile:
        found = path.stat()
        key = path.relative_to(self._root).as_posix()
        return StoredFile(key=key, size=found.st_size, version=str(found.st_mtime_ns))

    def _remove_empty_folders(self, folder: Path) -> None:
        while folder != self._root and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def _files_below(folder: Path, follow_links: bool) -> Iterator[Path]:
    """Yield every finished file, however deep; no link is followed back into a folder that it lies in."""
    waiting = [(folder, frozenset[tuple[int, int]]())]
    while waiting:
        folder, above = waiting.pop()
        found = folder.stat()
        identity = (found.st_dev, found.st_ino)
        if identity in above:
            continue
        for path in folder.iterdir():
            if path.is_dir():
                if follow_links or not path.is_symlink():
                    waiting.append((path, above | {identity}))
            elif not path.name.endswith(_UNFINISHED) and path.is_file():
                yield path


def _open_regular(path: Path) -> BinaryIO:
    _stat_of_file(path)
    return path.open("rb")


def _stat_of_file(path: Path) -> os.stat_result:
    """Return the status of a regular file; reading a pipe or a device might wait for ever."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise SourceNotFound(f"{path} is not a regular file", hint="give the path of a file", where=str(path))
    return found


def _copy(source: BinaryIO, path: Path, on_sent: OnSent) -> None:
    with path.open("xb") as file:
        while chunk := source.read(CHUNK_SIZE):
            if chunk == _ZEROS:  # leave a hole, which takes no disk space
                file.seek(len(chunk), os.SEEK_CUR)
            else:
                file.write(chunk)
            on_sent(len(chunk))
        file.truncate()  # sets the length where the file ends in a hole
        file.flush()
        os.fsync(file.fileno())


def publish(unfinished: Path, target: Path) -> None:
    """Give the finished file its name by a hard link, because a rename would replace an existing file."""
    try:
        os.link(unfinished, target)
    except FileExistsError:
        raise AlreadyPublished(f"{target} exists; a key is never overwritten", where=str(target)) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        raise StorageError(
            f"{target} cannot be published: the file system there has no hard links",
            hint="choose a folder of another file system, or an object store",
            where=str(target),
            retryable=False,
        ) from error


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Convert the system's errors on `path` into the exporter's errors."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceNotFound(f"there is no {path}", where=str(path)) from error
    except (NotADirectoryError, IsADirectoryError, FileExistsError) as error:
        raise SourceNotFound(f"{path} is not a file, or lies below one", where=str(path)) from error
    except PermissionError as error:
        raise StorageError(
            f"{path}: access denied", hint="check the file's permissions", where=str(path), retryable=False
        ) from error
    except OSError as error:
        raise StorageError(
            f"{path}: {error.strerror}",
            hint="make room there, or choose another place" if error.errno in _FULL else "check the disk",
            where=str(path),
            retryable=error.errno not in _PERMANENT,
        ) from error

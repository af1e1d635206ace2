"""A store in a folder of this machine."""

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from exporter.errors import AlreadyPublished, SourceNotFound, StorageError
from exporter.storage.descriptors import (
    create_file,
    files_below,
    link_file,
    open_folder,
    open_unlinked,
    stat_unlinked,
)
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
UNFINISHED = ".unfinished"  # suffix of a file that is being written; such files are not listed
_FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}  # the answers of FAT and of some FUSE file systems
_PERMANENT = {errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP}  # errors that another try cannot help
_STAYS = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR}  # of a folder that is not to be removed


class LocalStore(ArtifactStore):
    """Stores files below a folder; subfolders come and go with their files, as in an object store.

    Links on the way to the folder are followed once, when the store is opened. Below it nothing is written or
    removed behind a link, whenever the link was laid.
    """

    def __init__(self, root: Path, *, real: Path | None = None) -> None:
        """Open a folder, which need not exist.

        `real` is the path that was found, and checked, for it: then links are not followed for reading
        either, and none from the root of the file system on. By default readers follow them.
        """
        self._root = root.absolute()
        self._real = Path(os.path.realpath(self._root)) if real is None else real
        self._follows = real is None

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
            if self._follows:
                found = path.stat()
            else:
                with self._open_folder_of(key) as (folder, real):
                    found = stat_unlinked(real.name, folder, real)
            return _describe(key, _require_regular(found, path))

    def chunks(self, key: str) -> Iterator[bytes]:
        path = self._path(key)
        with translate_errors(path), self._open(key) as file:
            while chunk := file.read(CHUNK_SIZE):
                yield chunk

    def open_file(self, key: str) -> BinaryIO:
        with translate_errors(self._path(key)):
            return self._open(key)

    def list(self, prefix: str = "", *, follow_links: bool = False) -> tuple[StoredFile, ...]:
        if self._follows:
            return self._list_following(prefix, follow_links)
        with (
            translate_errors(self._root / check_prefix(prefix)),
            suppress(FileNotFoundError, NotADirectoryError),
            open_folder(self._real / prefix) as folder,
        ):
            found = files_below(folder)
            files = (_describe(f"{prefix}/{path}" if prefix else path, status) for path, status in found)
            return tuple(sorted(file for file in files if not file.key.endswith(UNFINISHED)))
        return ()

    def write(self, source: BinaryIO, size: int, key: str, on_sent: OnSent = ignore_sent) -> None:
        path = self._path(key)
        unfinished = f".{path.name}.{secrets.token_hex(8)}{UNFINISHED}"
        with translate_errors(path), self._open_folder_of(key, create=True) as (folder, real):
            try:
                with create_file(unfinished, folder) as file:
                    _copy(source, file, on_sent)
                    publish(file.fileno(), real.name, folder, path)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(unfinished, dir_fd=folder)

    def delete(self, key: str, permission: Permission = always) -> None:
        path = self._path(key)
        permission()
        with translate_errors(path):
            with suppress(FileNotFoundError), self._open_folder_of(key) as (folder, real):
                os.unlink(real.name, dir_fd=folder)
            self._remove_empty_folders(self._real / key)

    def delete_prefix(self, prefix: str, permission: Permission = always) -> None:
        path = self._path(prefix)
        with translate_errors(path):
            with suppress(FileNotFoundError), self._open_folder_of(prefix) as (folder, real):
                if not stat.S_ISDIR(stat_unlinked(real.name, folder, real).st_mode):
                    return
                permission()
                shutil.rmtree(real.name, dir_fd=folder)
            self._remove_empty_folders(self._real / prefix)

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    @contextmanager
    def _open_folder_of(self, key: str, *, create: bool = False) -> Iterator[tuple[int, Path]]:
        """Open the folder of a key without following links; yield it with the path of the key."""
        real = self._real / key
        with open_folder(real.parent, create=create) as folder:
            yield folder, real

    def _open(self, key: str) -> BinaryIO:
        path = self._path(key)
        if self._follows:
            _require_regular(path.stat(), path)  # opening a pipe might wait for ever
            return path.open("rb")
        with self._open_folder_of(key) as (folder, real):
            _require_regular(stat_unlinked(real.name, folder, real), path)
            return open_unlinked(real.name, folder)

    def _list_following(self, prefix: str, follow_links: bool) -> tuple[StoredFile, ...]:
        folder = self._root / check_prefix(prefix)
        if not folder.is_dir():
            return ()
        with translate_errors(folder):
            return tuple(
                sorted(
                    _describe(path.relative_to(self._root).as_posix(), path.stat())
                    for path in _files_below(folder, follow_links)
                )
            )

    def _remove_empty_folders(self, removed: Path) -> None:
        """Remove the folders above what was removed, up to the first that holds something else."""
        while (folder := removed.parent) != self._real:
            try:
                with open_folder(folder.parent) as above:
                    os.rmdir(folder.name, dir_fd=above)
            except OSError as error:
                if error.errno in _STAYS:
                    return
                raise
            removed = folder


def _describe(key: str, found: os.stat_result) -> StoredFile:
    return StoredFile(key=key, size=found.st_size, version=str(found.st_mtime_ns))


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
            elif not path.name.endswith(UNFINISHED) and path.is_file():
                yield path


def _require_regular(found: os.stat_result, path: Path) -> os.stat_result:
    """Return the status of a regular file; reading a pipe or a device might never end."""
    if not stat.S_ISREG(found.st_mode):
        raise SourceNotFound(f"{path} is not a regular file", hint="give the path of a file", where=str(path))
    return found


def _copy(source: BinaryIO, file: BinaryIO, on_sent: OnSent) -> None:
    while chunk := source.read(CHUNK_SIZE):
        if chunk == _ZEROS:  # leave a hole, which takes no disk space
            file.seek(len(chunk), os.SEEK_CUR)
        else:
            file.write(chunk)
        on_sent(len(chunk))
    file.truncate()  # sets the length where the file ends in a hole
    file.flush()
    os.fsync(file.fileno())


def publish(file: int, name: str, folder: int, target: Path) -> None:
    """Give the finished file its name by a hard link, because a rename would replace an existing file.

    `file` and `folder` are open, and `target` is the path of the name, for errors.
    """
    try:
        link_file(file, name, folder)
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

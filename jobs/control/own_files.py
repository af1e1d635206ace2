"""The files of a URI, found where that cannot take long: few files, on disks of this machine."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping

from exporter.storage.local import UNFINISHED
from exporter.storage.open import local_path
from exporter.storage.own_disks import lies_on_own_disk, read_mounts
from exporter.storage.store import StoredFile
from jobs.short_memory import Kept, NotAtHand

_FEW = 64  # files and folders below a folder


class OwnFiles:
    """Finds the files of URIs as `jobs.control.content.stat_files` does, or raises NotAtHand."""

    def __init__(self, read: Callable[[], Mapping[str, str]] = read_mounts) -> None:
        """Look at this machine's disks; `read` returns the kind of the file system at each mount point."""
        self._folders = Kept(lambda: _Folders(read()))

    def stat(self, uri: str) -> tuple[StoredFile, ...]:
        """Return the file that a URI names, or the files below the folder that it names.

        Raises:
            NotAtHand: it may lie elsewhere than on disks of this machine, or is anything but a file or a
                folder of few files.
        """
        path = local_path(uri.rstrip("/"))
        folder, _, name = ("" if path is None else os.fspath(path)).rpartition("/")
        folders = self._folders.get()
        if not folder.startswith("/") or name == ".." or not folders.are_own(folder):
            raise NotAtHand
        try:
            found = os.lstat(f"{folder}/{name}")
            if stat.S_ISREG(found.st_mode):
                return (_describe(name, found),)
            if not stat.S_ISDIR(found.st_mode) or not folders.are_own(f"{folder}/{name}"):
                raise NotAtHand
            files = tuple(sorted(_files_below(f"{folder}/{name}", name)))
        except OSError:
            raise NotAtHand from None
        if not files:
            raise NotAtHand
        return files


class _Folders:
    """The folders that were looked for while one table of mounts was kept."""

    def __init__(self, mounts: Mapping[str, str]) -> None:
        self._mounts = mounts
        self._own: dict[str, bool] = {}

    def are_own(self, folder: str) -> bool:
        """Return whether a folder lies on a disk of this machine, and so does what is below it."""
        own = self._own.get(folder)
        if own is None:
            own = self._own[folder] = lies_on_own_disk(folder, self._mounts)
        return own


def _files_below(path: str, key: str) -> Iterator[StoredFile]:
    """Yield the files below a folder, each with its key as seen from the folder above."""
    waiting, count = [(path, key)], 0
    while waiting:
        folder, key = waiting.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                if count > _FEW or entry.is_symlink():  # a link may lead anywhere
                    raise NotAtHand
                if entry.is_dir():
                    waiting.append((entry.path, f"{key}/{entry.name}"))
                elif entry.is_file() and not entry.name.endswith(UNFINISHED):
                    yield _describe(f"{key}/{entry.name}", entry.stat())


def _describe(key: str, found: os.stat_result) -> StoredFile:
    return StoredFile(key=key, size=found.st_size, version=str(found.st_mtime_ns))

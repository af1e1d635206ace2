"""Folders and files reached by descriptors, name by name, so that no link on the way is followed.

A path that was judged and is opened afterwards may lead elsewhere by then: somebody may have put a link in
the place of a folder. A folder that is open stays the same folder.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from exporter.errors import UriNotAllowed

# Opened as a place only (O_PATH), which needs no right to read the folder.
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def open_folder(path: Path, *, create: bool = False) -> Iterator[int]:
    """Open a folder by its absolute path, and create what is missing of it if `create` is set.

    Raises:
        UriNotAllowed: a part of the path is a link.
        OSError: it does not exist, or is no folder.
    """
    held = os.open("/", _FOLDER)
    try:
        reached = Path("/")
        for name in path.parts[1:]:
            reached /= name
            inner = _open_inner(name, held, reached, create=create)
            os.close(held)
            held = inner
        yield held
    finally:
        os.close(held)


def _open_inner(name: str, folder: int, path: Path, *, create: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
        with suppress(FileExistsError):  # another process was faster
            os.mkdir(name, dir_fd=folder)
        return _open_inner(name, folder, path, create=False)
    except OSError:
        stat_unlinked(name, folder, path)
        raise


def stat_unlinked(name: str, folder: int, path: Path) -> os.stat_result:
    """Return the status of what has this name in an open folder; raise UriNotAllowed if it is a link.

    `path` is for the error.
    """
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode):
        raise UriNotAllowed(
            f"{path} is a link, which is not followed below the place that was checked",
            hint="put a folder or a file in its place",
            where=str(path),
        )
    return found


def open_unlinked(name: str, folder: int) -> BinaryIO:
    """Open a file of an open folder for reading, neither following a link nor waiting for a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(name, flags, dir_fd=folder), "rb")


def create_file(name: str, folder: int) -> BinaryIO:
    """Create a file in an open folder and open it for writing; the name must be free, also of a link."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(name, flags, 0o666, dir_fd=folder), "wb")


def link_file(file: int, name: str, folder: int) -> None:
    """Give an open file a further name in an open folder; raise FileExistsError if the name is taken.

    The file is named by its descriptor: another file may have its first name by now.
    """
    os.link(f"/proc/self/fd/{file}", name, dst_dir_fd=folder, follow_symlinks=True)


def files_below(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path of every file in an open folder, however deep, with the status of the file itself.

    A link counts as a file, unless it leads to a folder, and is not followed. Pipes, sockets and devices are
    left out.
    """
    for above, _, names, inside in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        for name in names:
            with suppress(FileNotFoundError):  # removed meanwhile
                found = os.stat(name, dir_fd=inside, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) or stat.S_ISLNK(found.st_mode):
                    yield os.path.normpath(os.path.join(above, name)), found  # noqa: PTH118 (no Path here)

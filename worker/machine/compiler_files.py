"""What the compiler keeps on a machine: laid in ahead, kept where it spares work, else removed."""

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

_HEADERS = "precompiled_headers"  # seconds of every compile
_LIFETIME = timedelta(days=1)  # longer than any attempt may take
_LIMIT = 4 << 30  # bytes of what was generated; beyond them what is old goes earlier
_IN_USE = timedelta(hours=1)  # another attempt of this machine may still need what is younger


def remove_old_files(folder: Path, limit: int = _LIMIT) -> None:
    """Remove what was generated for programs a day ago or earlier; `folder` must be Slipway's own.

    Where more than `limit` bytes are left, the oldest go as well, but for those of the last hour.
    """
    if not folder.is_dir():
        return
    now, excess = time.time(), -limit
    for changed, left in sorted(_list_generated(folder), reverse=True):
        age = now - changed
        excess += _size(left)
        if age > _LIFETIME.total_seconds() or (excess > 0 and age > _IN_USE.total_seconds()):
            shutil.rmtree(left, ignore_errors=True)


def _list_generated(folder: Path) -> Iterator[tuple[float, Path]]:
    """What was generated for programs, and when."""
    for left in folder.iterdir():
        with suppress(OSError):  # another attempt was quicker
            if left.is_dir() and not _is_about_machine(left):
                yield left.stat().st_mtime, left


def _size(folder: Path) -> int:
    """Bytes of all files."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def copy_precompiled(ahead: Path, folder: Path) -> None:
    """Copy to `folder` what was compiled ahead and is not there yet, each file whole or not at all."""
    kept = [each for each in ahead.glob("*") if each.is_dir() and _is_about_machine(each)]
    for source in [path for each in kept for path in each.rglob("*") if path.is_file()]:
        target = folder / source.relative_to(ahead)
        if target.exists():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{secrets.token_hex(8)}")
        try:
            shutil.copyfile(source, partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def _is_about_machine(folder: Path) -> bool:
    """Whether what is there was found out about the machine: compiled headers, and probes of instructions.

    A program's library lies in a folder with a name of its own; a probe's in one of two letters.
    """
    return folder.name == _HEADERS or (len(folder.name) == 2 and any(folder.glob("*.so")))

"""Files that the compiler keeps on a machine: copied in if precompiled, kept if reusable, else removed."""

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

_HEADERS = "precompiled_headers"  # save seconds of every compile
_LIFETIME = timedelta(days=1)  # longer than any attempt may take
_LIMIT = 4 << 30  # bytes of generated files; above it old ones are removed earlier
_IN_USE = timedelta(hours=1)  # another attempt on this machine may still need younger files


def remove_old_files(folder: Path, limit: int = _LIMIT) -> None:
    """Remove files generated for programs a day ago or earlier; `folder` must be Slipway's own.

    If more than `limit` bytes remain, remove the oldest too, but none from the last hour.
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
    """Yield the folders generated for programs, with their time of change."""
    for left in folder.iterdir():
        with suppress(OSError):  # another attempt has removed it
            if left.is_dir() and not _is_about_machine(left):
                yield left.stat().st_mtime, left


def _size(folder: Path) -> int:
    """Return the bytes of all files below the folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size
    return total


def copy_precompiled(ahead: Path, folder: Path) -> None:
    """Copy precompiled files from `ahead` to `folder` where they are missing, each completely or not at
    all.
    """
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
    """True if the folder holds facts about the machine: compiled headers, or probes of its instructions.

    A program's library lies in a folder with a name of its own; a probe's lies in one of two letters.
    """
    return folder.name == _HEADERS or (len(folder.name) == 2 and any(folder.glob("*.so")))

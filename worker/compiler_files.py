"""What the compiler keeps on a machine: laid in ahead, kept where it spares work, else removed."""

import secrets
import shutil
import time
from datetime import timedelta
from pathlib import Path

_HEADERS = "precompiled_headers"  # seconds of every compile
_LIFETIME = timedelta(days=1)  # longer than any attempt may take


def prune(folder: Path) -> None:
    """Remove what was generated for programs a day ago or earlier; `folder` must be Slipway's own."""
    oldest = time.time() - _LIFETIME.total_seconds()
    if not folder.is_dir():
        return
    for left in folder.iterdir():
        try:
            if left.is_dir() and not _of_the_machine(left) and left.stat().st_mtime < oldest:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:  # another attempt was quicker
            continue


def lay_in(ahead: Path, folder: Path) -> None:
    """Copy to `folder` what was compiled ahead and is not there yet, each file whole or not at all."""
    kept = [each for each in ahead.glob("*") if each.is_dir() and _of_the_machine(each)]
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


def _of_the_machine(folder: Path) -> bool:
    """Whether what is there was found out about the machine: compiled headers, and probes of instructions.

    A program's library lies in a folder with a name of its own; a probe's in one of two letters.
    """
    return folder.name == _HEADERS or (len(folder.name) == 2 and any(folder.glob("*.so")))

"""Folders that one process of a test run fills and all of its processes share: what takes long to compile."""

import fcntl
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def fill_once(run_folder: Path, name: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder of this name below `run_folder`, filled by the process of the run that asks first.

    Other processes wait until it is complete, and no test may change it. After an exception of `fill` the
    next to ask starts with an empty folder.
    """
    folder = run_folder / name
    complete = folder.with_name(f"{name}.complete")
    with _locked(folder.with_name(f"{name}.lock")):
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder)
            complete.touch()
    return folder


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # a forked process that still runs holds the file open

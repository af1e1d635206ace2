"""Time limit for code that may hang: it ends the process and leaves the Python stack where it hung."""

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OVERRUN = "Timeout ("  # start of the text that the interpreter writes when the limit has passed


@contextmanager
def enforce_time_limit(seconds: float, note: Path, *, what: str) -> Iterator[None]:
    """End this process if the context takes longer; the file `note` then holds `what` and the stack.

    The process is ended by a thread that needs no interpreter lock, because hanging code may hold the lock.
    """
    note.parent.mkdir(parents=True, exist_ok=True)
    with note.open("w") as file:
        file.write(f"{what}\n")
        file.flush()
        faulthandler.dump_traceback_later(seconds, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    note.unlink()


def read_overrun(note: Path) -> tuple[str, str] | None:
    """Return what a process was doing when its time limit passed, and the stack; None if it did not pass."""
    if not note.exists():
        return None
    what, _, stack = note.read_text(errors="replace").partition("\n")
    return (what, stack) if _OVERRUN in stack else None

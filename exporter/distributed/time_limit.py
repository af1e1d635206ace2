"""A limit for what may hang: past it the process ends, and leaves the Python stack it hung in."""

import faulthandler
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OVERRUN = "Timeout ("  # how the interpreter begins what it writes past a limit


@contextmanager
def enforce_time_limit(seconds: float, note: Path, *, what: str) -> Iterator[None]:
    """End this process if what is done inside takes longer; `note` then holds `what` and the stack.

    Ended from a thread that needs no interpreter lock, because code that hangs may hold it.
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
    """What a process was doing when it ran past its limit, and the stack; None if it did not."""
    if not note.exists():
        return None
    what, _, stack = note.read_text(errors="replace").partition("\n")
    return (what, stack) if _OVERRUN in stack else None

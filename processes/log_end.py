"""The end of a log, however long the log is: what a child writes is not for its parent's memory."""

import os
from pathlib import Path

_MOST_BYTES = 1 << 20


def read_log_end(log: Path, most_bytes: int = _MOST_BYTES) -> str:
    """The last `most_bytes` as text; the first of its lines may be cut."""
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes).decode(errors="replace")

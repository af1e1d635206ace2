"""Read the end of a log without reading all of it into memory."""

import os
from pathlib import Path

_MOST_BYTES = 1 << 20


def read_log_end(log: Path, most_bytes: int = _MOST_BYTES) -> str:
    """Return the last `most_bytes` as text; the first line may be cut."""
    with log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - most_bytes))
        return file.read(most_bytes).decode(errors="replace")

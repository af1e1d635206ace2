"""The largest resident memory of a process, as Linux keeps it."""

from contextlib import suppress
from pathlib import Path


def reset_peak() -> None:
    """Begin this process's peak anew; where that is not allowed it stays the one since its start."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(pid: int | None = None) -> int:
    """The peak of this process, or of another one that runs."""
    status = Path(f"/proc/{pid or 'self'}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024

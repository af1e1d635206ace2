"""The peak resident memory of a process, which Linux records."""

from contextlib import suppress
from pathlib import Path


def reset_peak() -> None:
    """Reset this process's peak; if that is not permitted, it stays the peak since the process started."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes(pid: int | None = None) -> int:
    """Return the peak in bytes of this process, or of another running one."""
    status = Path(f"/proc/{pid or 'self'}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024

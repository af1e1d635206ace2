"""Memory and processor time of a process and its descendants.

Memory is anonymous, or mapped pages that the kernel can drop.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import BaseModel

_PERIOD_S = 0.1
_USER_TICKS = 11  # place of the time in user mode behind the name in /proc/<pid>/stat; the kernel's follows


class Peak(BaseModel):
    """The largest sums over all processes at one moment, in bytes."""

    anonymous: int = 0  # private and shared memory without a file
    mapped: int = 0  # pages of files, which the kernel can drop
    whole: int = 0  # both together, at one moment


class MemoryWatch:
    """Samples the memory of a process and its descendants while the context lasts."""

    def __init__(self, root: int) -> None:
        """Watch the process with this number, and its descendants."""
        self.peak = Peak()
        self._root = root
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_PERIOD_S):
            now = [memory_of(pid) for pid in process_tree(self._root)]
            self.peak = Peak(
                anonymous=max(self.peak.anonymous, sum(each.anonymous for each in now)),
                mapped=max(self.peak.mapped, sum(each.mapped for each in now)),
                whole=max(self.peak.whole, sum(each.whole for each in now)),
            )


def memory_of(pid: int) -> Peak:
    """Return a process's memory now, with its share of shared pages; all zero once the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return Peak()
    kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    anonymous, mapped = (kilobytes["Pss_Anon"] + kilobytes["Pss_Shmem"]) << 10, kilobytes["Pss_File"] << 10
    return Peak(anonymous=anonymous, mapped=mapped, whole=anonymous + mapped)


def processor_seconds(root: int) -> float:
    """Return the seconds that the cores have worked for a process and its descendants that still run."""
    ticks = 0
    for pid in process_tree(root):
        with suppress(OSError):  # it has ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[_USER_TICKS]) + int(fields[_USER_TICKS + 1])
    return ticks / os.sysconf("SC_CLK_TCK")


def process_tree(root: int) -> list[int]:
    """Return the process and all its descendants."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        parent = int(text.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(text.partition(" ")[0]))
    found, pending = [], [root]
    while pending:
        found.append(pid := pending.pop())
        pending += children.get(pid, [])
    return found

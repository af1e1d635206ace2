"""The memory of a process and all that it started, sampled while it runs."""

import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_EVERY_S = 0.5


class FamilyMemory:
    """Watches a process family; pages that several of it share count once. A context manager."""

    def __init__(self, pid: int) -> None:
        """Nothing is looked at before it is entered."""
        self.peak_bytes = 0
        self._pid = pid
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
        while not self._ended.is_set():
            self.peak_bytes = max(self.peak_bytes, sum(_proportional(pid) for pid in _family(self._pid)))
            time.sleep(_EVERY_S)


def _family(pid: int) -> list[int]:
    found = [pid]
    for member in found:  # grows while it is read
        try:
            for task in Path(f"/proc/{member}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:  # it has just ended
            continue
    return found


def _proportional(pid: int) -> int:
    """Its own pages, and its share of those it shares."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)

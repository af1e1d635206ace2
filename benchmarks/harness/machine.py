"""The machine that figures were measured on, and how busy it was."""

import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Self

from pydantic import BaseModel

_CPU = "model name"


class Machine(BaseModel):
    """Hardware and versions, with the load: processes that wanted to run, averaged over the last minute."""

    cpu: str
    cores: int
    memory_bytes: int
    python: str
    torch: str
    load_before: float
    load_after: float

    @classmethod
    def describe(cls, load_before: float) -> Self:
        """Describe this machine at the end of a benchmark that began under `load_before`."""
        named = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(_CPU)]
        return cls(
            cpu=named[0].partition(":")[2].strip() if named else platform.machine(),
            cores=len(os.sched_getaffinity(0)),
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            python=platform.python_version(),
            torch=version("torch"),
            load_before=load_before,
            load_after=load(),
        )

    def text(self) -> str:
        return (
            f"{self.cores} cores ({self.cpu}), {self.memory_bytes / 1e9:.0f} GB; load "
            f"{self.load_before:.1f} at the start, {self.load_after:.1f} at the end; torch {self.torch}"
        )


def load() -> float:
    """Return the load of the last minute."""
    return os.getloadavg()[0]

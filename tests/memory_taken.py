"""Measure the memory that a piece of work takes, in a process that has done nothing else.

A process that has run other tests says little: the C library keeps freed blocks of sizes that were freed
before, up to 64 MB of them at an end of its heap, and what other tests have left behind comes and goes.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from benchmarks.measure.process_memory import MemoryWatch, memory_of, process_tree

# From this size on a block is given back the moment it is freed, however often its like was freed before.
_GIVEN_BACK = f"MALLOC_MMAP_THRESHOLD_={256 << 10}"

Work = Callable[[Path], object]


def memory_taken(work: Work, folder: Path) -> int:
    """Return the peak of anonymous memory, in bytes, while a module's function works in a folder.

    It is measured over a new process and its descendants, less what the process had before.
    """
    program = [sys.executable, "-m", __name__, work.__module__, work.__name__, str(folder)]
    ended = subprocess.run(["env", _GIVEN_BACK, *program], stdout=subprocess.PIPE, text=True, check=True)
    return int(ended.stdout.splitlines()[-1])


def _taken_here(work: Work, folder: Path) -> int:
    before = sum(memory_of(pid).anonymous for pid in process_tree(os.getpid()))
    with MemoryWatch(os.getpid()) as watch:
        work(folder)
    assert watch.peak.anonymous > 0, "the work ended before its memory was sampled"
    return watch.peak.anonymous - before


if __name__ == "__main__":
    module, name, folder = sys.argv[1:]
    taken = _taken_here(getattr(import_module(module), name), Path(folder))
    sys.stdout.write(f"{taken}\n")

"""Let the kernel bound the memory that a call may take: for readers whose libraries know no limit."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_PAGE = resource.getpagesize()
_ONE_AT_A_TIME = threading.Lock()  # the limit is one of the whole process


@contextmanager
def limit_memory(most: int) -> Iterator[None]:
    """Bound the process's private memory at `most` bytes; a call that needs more raises MemoryError.

    The kernel counts the memory as RLIMIT_DATA, without mapped files, and that of all threads. So the context
    is for short calls in which nothing else of the process needs much memory.
    """
    with _ONE_AT_A_TIME:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        limit = most if soft == resource.RLIM_INFINITY else min(most, soft)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def memory_in_use() -> int:
    """Return the process's private memory as `limit_memory` counts it."""
    file = os.open("/proc/self/statm", os.O_RDONLY)  # read for every batch, so without Python's own buffers
    try:
        return int(os.read(file, 256).split()[5]) * _PAGE
    finally:
        os.close(file)

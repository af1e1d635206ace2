"""What is kept of a failure for whoever is to find out why: a small zip per tower, or of the attempt."""

from typing import Protocol

from exporter.spec import TowerName
from jobs.ids import JobId

MOST_BYTES = 1 << 20


class Bundles(Protocol):
    """The latest bundle of every job's towers; without a tower, of an attempt that failed as a whole."""

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> None: ...

    def get(self, job_id: JobId, tower: TowerName | None) -> bytes | None: ...


def bundle_url(job_id: JobId, tower: TowerName | None) -> str:
    """Where the API serves it."""
    return f"/exports/{job_id}/bundle" + (f"?tower={tower}" if tower else "")


class MemoryBundles:
    """Bundles in a dict, for tests."""

    def __init__(self) -> None:
        """Begin empty."""
        self._contents: dict[tuple[JobId, TowerName | None], bytes] = {}

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> None:
        self._contents[job_id, tower] = content

    def get(self, job_id: JobId, tower: TowerName | None) -> bytes | None:
        return self._contents.get((job_id, tower))

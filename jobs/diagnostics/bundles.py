"""Bundles: for each failed tower or attempt, a small zip of diagnostic data."""

from pathlib import Path
from typing import Protocol

from exporter.spec import TowerName
from exporter.storage.local import LocalStore
from jobs.ids import JobId

MAX_BYTES = 1 << 20


class Bundles(Protocol):
    """Stores the latest bundle per job and tower.

    Without a tower, it is the bundle of an attempt that failed as a whole.
    """

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> str:
        """Store the bundle and return the URL or path where people find it."""

    def get(self, job_id: JobId, tower: TowerName | None) -> bytes | None: ...


def bundle_url(job_id: JobId, tower: TowerName | None) -> str:
    """Return the path under which the API serves the bundle."""
    return f"/exports/{job_id}/bundle" + (f"?tower={tower}" if tower else "")


class MemoryBundles:
    """Bundles in a dict, for tests."""

    def __init__(self) -> None:
        """Start without bundles."""
        self._contents: dict[tuple[JobId, TowerName | None], bytes] = {}

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> str:
        self._contents[job_id, tower] = content
        return bundle_url(job_id, tower)

    def get(self, job_id: JobId, tower: TowerName | None) -> bytes | None:
        return self._contents.get((job_id, tower))


class FolderBundles:
    """Bundles as files of a local folder: <job id>-<tower>.zip."""

    def __init__(self, folder: Path) -> None:
        """Store them below `folder`, which need not exist; StorageError if it cannot be written to."""
        LocalStore(folder).require_writable()
        self._folder = folder

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> str:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(job_id, tower)
        file.write_bytes(content)
        return str(file)

    def get(self, job_id: JobId, tower: TowerName | None) -> bytes | None:
        file = self._file(job_id, tower)
        return file.read_bytes() if file.exists() else None

    def _file(self, job_id: JobId, tower: TowerName | None) -> Path:
        return self._folder / f"{job_id}{f'-{tower}' if tower else ''}.zip"

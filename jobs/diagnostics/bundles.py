"""What is kept of a failure for whoever is to find out why: a small zip per tower, or of the attempt."""

from pathlib import Path
from typing import Protocol

from exporter.spec import TowerName
from exporter.storage.local import LocalStore
from jobs.ids import JobId

MAX_BYTES = 1 << 20


class Bundles(Protocol):
    """The latest bundle of every job's towers; without a tower, of an attempt that failed as a whole."""

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> str:
        """Keep it; returns where it is to be had."""

    def get(self, job_id: JobId, tower: TowerName | None) -> bytes | None: ...


def bundle_url(job_id: JobId, tower: TowerName | None) -> str:
    """Where the API serves it."""
    return f"/exports/{job_id}/bundle" + (f"?tower={tower}" if tower else "")


class MemoryBundles:
    """Bundles in a dict, for tests."""

    def __init__(self) -> None:
        """Begin empty."""
        self._contents: dict[tuple[JobId, TowerName | None], bytes] = {}

    def put(self, job_id: JobId, tower: TowerName | None, content: bytes) -> str:
        self._contents[job_id, tower] = content
        return bundle_url(job_id, tower)

    def get(self, job_id: JobId, tower: TowerName | None) -> bytes | None:
        return self._contents.get((job_id, tower))


class FolderBundles:
    """Bundles as files of a folder of this machine: <job id>-<tower>.zip."""

    def __init__(self, folder: Path) -> None:
        """Keep them below `folder`, which need not exist; StorageError if it plainly cannot be written to."""
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

"""The directories of attempts: one per attempt below one per worker process, removed afterwards."""

import hashlib
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from exporter.outcome import ExportOutcome, Failure
from exporter.spec import ExportSpec, Frozen, Target
from jobs.model import Job
from telemetry.logging import logger

log = logger(__name__)

_FAILURES = "failed-*.json"
_HELPS = "helps"


class AttemptFile(Frozen):
    """attempt.json: what the ranks are to do."""

    job_id: str
    attempt: int
    spec: ExportSpec
    config_uri: str | None = None  # where the spec's inline config was read
    folder: str  # of the artifact, below the spec's output_uri
    replace_unfinished: bool  # an earlier attempt may have left files without a manifest
    traceparent: str | None = None  # the span of the attempt, where it is traced


@dataclass(frozen=True)
class Workspace:
    """One attempt's directory, shared with its ranks."""

    path: Path
    artifact_uri: str  # where its attempt's artifact is to be

    @classmethod
    def at(cls, path: Path) -> Self:
        """The one that a supervisor has made there."""
        request = AttemptFile.model_validate_json((path / "attempt.json").read_bytes())
        return cls(path, artifact_uri=f"{request.spec.output_uri.rstrip('/')}/{request.folder}")

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def tmp(self) -> Path:
        return self.path / "tmp"

    def read_request(self) -> AttemptFile:
        """What the ranks are to do, as `write` left it."""
        return AttemptFile.model_validate_json((self.path / "attempt.json").read_bytes())

    def write_request(self, request: AttemptFile) -> None:
        """Give the ranks this request, in place of an earlier one."""
        (self.path / "attempt.json").write_text(request.model_dump_json())

    def mark_as_helper(self) -> None:
        """Mark the workspace as that of a host that helps with another's attempt."""
        (self.path / _HELPS).touch()

    @property
    def is_helper(self) -> bool:
        """Whether another host publishes, and cleans up, what this attempt makes."""
        return (self.path / _HELPS).exists()

    def remove_failures(self) -> None:
        """Remove what failing ranks wrote: the attempt has one failure for all of them."""
        for told in self.path.glob(_FAILURES):
            told.unlink()

    def read_rank_failure(self) -> Failure | None:
        """The failure that a rank left when it could not tell rank 0; None if there is none."""
        files = sorted(self.path.glob(_FAILURES))
        return Failure.model_validate_json(files[0].read_bytes()) if files else None

    def read_outcome(self) -> ExportOutcome | None:
        """What rank 0 wrote; None if it wrote nothing."""
        path = self.path / "outcome.json"
        return ExportOutcome.model_validate_json(path.read_bytes()) if path.exists() else None


def write_outcome(outcome: ExportOutcome, workspace: Path) -> None:
    """Called by rank 0, for all ranks."""
    _write_atomically(outcome, workspace / "outcome.json")


def write_failure(failure: Failure, rank: int, workspace: Path) -> None:
    """Called by a rank that failed as a whole and cannot tell rank 0."""
    _write_atomically(failure, workspace / f"failed-{rank}.json")


def _write_atomically(value: Frozen, path: Path) -> None:
    """Write the file whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(value.model_dump_json(indent=2))
    partial.rename(path)


def artifact_folder(job: Job, target: Target | None = None) -> str:
    """Where attempts for a target publish, by default the current one, below the spec's output_uri."""
    return f"{job.id}/{target or job.current_target}" if len(job.spec.targets) > 1 else job.id


def artifact_uri_of(job: Job, target: Target | None = None) -> str:
    """The URI of the artifact for a target, by default of the current attempt."""
    return f"{job.spec.output_uri.rstrip('/')}/{artifact_folder(job, target)}"


@contextmanager
def open_workspace(job: Job, worker_dir: Path, traceparent: str | None = None) -> Iterator[Workspace]:
    """Make the directory of a job's attempt, and remove it with all it holds."""
    # Short: a Unix socket below TMPDIR may have a path of 108 bytes at most.
    workspace = Workspace(worker_dir / f"{job.id[-8:]}-{job.attempt}", artifact_uri=artifact_uri_of(job))
    workspace.path.mkdir(parents=True, mode=0o700)
    workspace.tmp.mkdir()
    request = AttemptFile(
        job_id=job.id,
        attempt=job.attempt,
        spec=job.current_spec,
        config_uri=job.config_uri,
        folder=artifact_folder(job),
        replace_unfinished=job.attempt > 1,
        traceparent=traceparent,
    )
    workspace.write_request(request)
    try:
        yield workspace
    finally:
        shutil.rmtree(workspace.path, ignore_errors=True)


def own_worker_dir(work_dir: Path, pid: int) -> Path:
    """The directory of a worker process.

    Its name is HOST-PID-INCARNATION: host and incarnation are digests, the latter of the boot and the
    process's start, so that a process number used again is not taken for its first owner.
    """
    return work_dir.absolute() / f"{_host()}-{pid}-{_incarnation(pid)}"


def remove_leftovers(work_dir: Path) -> None:
    """Remove the directories of dead workers on this host; those of other hosts cannot be judged."""
    for left in work_dir.absolute().glob(f"{_host()}-*-*"):
        _, pid, incarnation = left.name.split("-")
        if incarnation != _incarnation(int(pid)):
            log.info("workspace_left_over", path=str(left))
            shutil.rmtree(left, ignore_errors=True)


def _host() -> str:
    return _digest(socket.gethostname())[:4]


def _incarnation(pid: int) -> str | None:
    """Which process now has this number; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    started = stat.rpartition(")")[2].split()[19]  # field 22: ticks since boot
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return _digest(f"{boot} {started}")[:8]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

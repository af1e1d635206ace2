"""The directories of attempts: one per attempt, below one per worker process, removed afterwards."""

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
from exporter.storage.places import Places
from exporter.storage.store import ArtifactStore
from exporter.storage.uris import NO_RULES, FileRoots, UriRules
from jobs.control.baselines import NO_CONTEXT, ReleaseContext
from jobs.model import Job
from telemetry.logging import logger
from worker.settings import AttemptSettings

log = logger(__name__)

_FAILURES = "failed-*.json"
_HELPS = "helps"


class AttemptFile(Frozen):
    """attempt.json: the request that the ranks carry out."""

    job_id: str
    attempt: int
    spec: ExportSpec
    uris: UriRules = NO_RULES  # of the key behind the job
    config_uri: str | None = None  # source of the spec's inline config
    folder: str  # folder of the artifact, below the spec's output_uri
    replace_unfinished: bool  # an earlier attempt may have left files without a manifest
    context: ReleaseContext = NO_CONTEXT  # releases that the release gate needs beside the job's own
    traceparent: str | None = None  # span of the attempt, if it is traced

    @property
    def released(self) -> tuple[str, ...]:
        """URIs of earlier artifacts that the attempt reads."""
        return self.context.artifact_uris


@dataclass(frozen=True)
class Workspace:
    """The directory of one attempt, shared between its supervisor and its ranks."""

    path: Path
    artifact_uri: str  # where the attempt publishes its artifact

    @classmethod
    def at(cls, path: Path) -> Self:
        """Open the workspace that a supervisor has made at `path`."""
        request = AttemptFile.model_validate_json((path / "attempt.json").read_bytes())
        return cls(path, artifact_uri=f"{request.spec.output_uri.rstrip('/')}/{request.folder}")

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def tmp(self) -> Path:
        return self.path / "tmp"

    def read_request(self) -> AttemptFile:
        """Return the content of attempt.json."""
        return AttemptFile.model_validate_json((self.path / "attempt.json").read_bytes())

    def write_request(self, request: AttemptFile) -> None:
        """Write attempt.json, in place of an earlier one."""
        (self.path / "attempt.json").write_text(request.model_dump_json())

    def mark_as_helper(self) -> None:
        """Mark this host as one that helps with an attempt which another worker leads."""
        (self.path / _HELPS).touch()

    @property
    def is_helper(self) -> bool:
        """True if another host publishes, and cleans up, what this attempt writes."""
        return (self.path / _HELPS).exists()

    def remove_failures(self) -> None:
        """Remove the failures that ranks wrote, because one failure is reported for all of them."""
        for file in self.path.glob(_FAILURES):
            file.unlink()

    def read_rank_failure(self) -> Failure | None:
        """Return the failure of a rank that failed before it could meet rank 0; None if there is none."""
        files = sorted(self.path.glob(_FAILURES))
        return Failure.model_validate_json(files[0].read_bytes()) if files else None

    def read_outcome(self) -> ExportOutcome | None:
        """Return the outcome that rank 0 wrote; None if there is none."""
        path = self.path / "outcome.json"
        return ExportOutcome.model_validate_json(path.read_bytes()) if path.exists() else None


def write_outcome(outcome: ExportOutcome, workspace: Path) -> None:
    """Write the outcome of all ranks; called by rank 0."""
    _write_atomically(outcome, workspace / "outcome.json")


def write_failure(failure: Failure, rank: int, workspace: Path) -> None:
    """Write the failure of a rank that failed before it could meet rank 0."""
    _write_atomically(failure, workspace / f"failed-{rank}.json")


def _write_atomically(value: Frozen, path: Path) -> None:
    """Write the file completely or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(value.model_dump_json(indent=2))
    partial.rename(path)


def artifact_folder(job: Job, target: Target | None = None) -> str:
    """Return the folder below the spec's output_uri where attempts for a target publish.

    The default is the current target.
    """
    return f"{job.id}/{target or job.current_target}" if len(job.spec.targets) > 1 else job.id


def artifact_uri_of(job: Job, target: Target | None = None) -> str:
    """Return the URI of the artifact for a target, by default the current one."""
    return f"{job.spec.output_uri.rstrip('/')}/{artifact_folder(job, target)}"


def places_of(uris: UriRules) -> Places:
    """Return where a job of a key with these rules may read and write on this machine."""
    folders = FileRoots(roots=AttemptSettings().file_roots)
    return Places(folders=folders, rules=uris, trusts_configs=False)


def open_output_of(job: Job, uri: str) -> ArtifactStore:
    """Open the store of a folder in the job's output; judge again whether the job may write there."""
    return places_of(job.uris).open_output(job.spec.output_uri, uri)


@contextmanager
def open_workspace(
    job: Job,
    config: str,
    worker_dir: Path,
    traceparent: str | None = None,
    context: ReleaseContext = NO_CONTEXT,
) -> Iterator[Workspace]:
    """Create the directory of a job's attempt; remove it with all its content afterwards.

    `config` is the text of the job's config.
    """
    # Short, because the path of a Unix socket below TMPDIR may have at most 108 bytes.
    workspace = Workspace(worker_dir / f"{job.id[-8:]}-{job.attempt}", artifact_uri=artifact_uri_of(job))
    workspace.path.mkdir(parents=True, mode=0o700)
    workspace.tmp.mkdir()
    request = AttemptFile(
        job_id=job.id,
        attempt=job.attempt,
        spec=job.current_spec.with_config(config),
        uris=job.uris,
        config_uri=job.config_uri,
        folder=artifact_folder(job),
        replace_unfinished=job.attempt > 1,
        context=context,
        traceparent=traceparent,
    )
    workspace.write_request(request)
    try:
        yield workspace
    finally:
        shutil.rmtree(workspace.path, ignore_errors=True)


def own_worker_dir(work_dir: Path, pid: int) -> Path:
    """Return the directory of a worker process.

    Its name is HOST-PID-INCARNATION. Host and incarnation are digests, the latter of the boot id and the
    start time of the process, so that a reused process number is not taken for its first owner.
    """
    return work_dir.absolute() / f"{_host()}-{pid}-{_incarnation(pid)}"


def remove_leftovers(work_dir: Path) -> None:
    """Remove the directories of this host's dead workers; other hosts' workers may be alive."""
    for left in work_dir.absolute().glob(f"{_host()}-*-*"):
        _, pid, incarnation = left.name.split("-")
        if incarnation != _incarnation(int(pid)):
            log.info("workspace_left_over", path=str(left))
            shutil.rmtree(left, ignore_errors=True)


def _host() -> str:
    return _digest(socket.gethostname())[:4]


def _incarnation(pid: int) -> str | None:
    """Return a digest that identifies the process with this number; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    started = stat.rpartition(")")[2].split()[19]  # field 22: ticks since boot
    boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    return _digest(f"{boot} {started}")[:8]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

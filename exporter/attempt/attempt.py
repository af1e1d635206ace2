"""One attempt at an export: its inputs, the results of its towers, and diagnostics of a failed one."""

import logging
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from exporter.distributed.fork_server import ForkServer
from exporter.manifest import SourceRef, TowerEntry
from exporter.outcome import ExportOutcome, Failure
from exporter.reports.release_report import ReleasedArtifacts
from exporter.spec import ExportSpec, TowerName
from exporter.storage.places import EVERYWHERE, Places
from exporter.storage.store import ArtifactStore, StoredFile
from exporter.towers.plan import TowerToExport

DIAGNOSTICS = "evidence"  # name of the folder of diagnostics, below a tower's

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at one export: the request, the job's id, and the folder to work in."""

    job_id: str
    spec: ExportSpec
    workspace: Path
    config_uri: str | None = None  # the URI that the spec's inline config was read from
    folder: str | None = None  # of the artifact, below the spec's output_uri; default: the job's id
    places: Places = EVERYWHERE  # where the job may read and write
    families: tuple[str, ...] = ()  # custom families whose packages may be loaded
    stage_limit_s: float = 3600.0  # longest time of a stage; past it the tower's process is ended
    replace_unfinished: bool = False  # overwrite what an earlier attempt left without a manifest
    code_cache: str | None = None  # URI of compiled code that exports share
    baseline: ReleasedArtifacts | None = None  # the release that this one is compared with
    siblings: Mapping[TowerName, str] = field(default_factory=dict)  # artifacts of towers that a retry keeps
    obstacle: str = ""  # why its release cannot be judged, where that is known beforehand
    # Called with the outcome once it is published, and before its release is judged, which may take long.
    on_published: Callable[[ExportOutcome], None] = lambda outcome: None
    runners: ForkServer | None = None  # of the processes that run packages; without it each starts by itself
    # Waits until the job certainly belongs to this attempt; returns for how long it does, None for ever.
    await_lease: Callable[[], timedelta | None] = lambda: None

    @property
    def artifact_uri(self) -> str:
        """URI of the artifact's folder."""
        return f"{self.spec.output_uri.rstrip('/')}/{self.folder or self.job_id}"

    def open_output(self, uri: str) -> ArtifactStore:
        """Open the store of a folder in the output; judge again whether the job may write there."""
        return self.places.open_output(self.spec.output_uri, uri)


@dataclass(frozen=True, kw_only=True)
class ExportedTower:
    """A tower that passed the gate: its manifest entry, and the local files that the entry names."""

    entry: TowerEntry
    files: dict[str, Path]  # path below the artifact's root -> local file
    sources: tuple[SourceRef, ...]
    op_libraries: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TowerResult:
    """The result of one tower on its rank: exported, or failed."""

    planned: TowerToExport
    exported: ExportedTower | None = None
    uploaded: tuple[StoredFile, ...] = ()  # files of an exported tower
    upload_failure: Failure | None = (
        None  # why they could not be uploaded; nothing of the attempt is published then
    )
    failure: Failure | None = None


class Diagnostics:
    """Texts to write beside a failure, for people; they are rendered only once there is one."""

    def __init__(self, folder: Path) -> None:
        """Write below `folder`, which need not exist."""
        self._folder = folder
        self._texts: dict[str, Callable[[], str]] = {}

    def keep(self, name: str, text: Callable[[], str]) -> None:
        """Register `text` to be written to the file `name` if a later step fails."""
        self._texts[name] = text

    def write(self, error: BaseException) -> None:
        """Write the traceback and all registered texts; texts that raise are left out."""
        self._folder.mkdir(parents=True, exist_ok=True)
        trace = traceback.format_exception(error)
        (self._folder / "traceback.txt").write_text("".join(trace))
        for name, text in self._texts.items():
            try:
                (self._folder / name).write_text(text())
            except Exception:  # the failure itself must be reported all the same
                log.exception("diagnostics_lost", extra={"name_of_file": name})

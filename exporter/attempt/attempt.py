"""One try at one export: what it is given, what a rank makes of its towers, what a failing one leaves."""

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from exporter.manifest import SourceRef, TowerEntry
from exporter.outcome import Failure
from exporter.spec import ExportSpec
from exporter.storage.store import StoredFile
from exporter.towers.plan import TowerToExport

DIAGNOSTICS = "evidence"  # the folder, below a tower's

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at one export: what is asked for, under which id, and where to work."""

    job_id: str
    spec: ExportSpec
    workspace: Path
    config_uri: str | None = None  # where the spec's inline config was read, if anywhere
    folder: str | None = None  # of the artifact, below the spec's output_uri; default: the job's id
    families: tuple[str, ...] = ()  # of one's own, whose packages may be loaded
    stage_limit_s: float = 3600.0  # past it a stage is ended, with the stack it hung in
    replace_unfinished: bool = False  # overwrite what an earlier attempt left without a manifest
    code_cache: str | None = None  # URI of compiled code that exports share
    # Returns once the job certainly belongs to this attempt, and for how long it does; None: for ever.
    await_lease: Callable[[], timedelta | None] = lambda: None

    @property
    def artifact_uri(self) -> str:
        """Where its artifact is to be."""
        return f"{self.spec.output_uri.rstrip('/')}/{self.folder or self.job_id}"


@dataclass(frozen=True, kw_only=True)
class ExportedTower:
    """A tower that passed the gate: its manifest entry, and the local files the entry speaks of."""

    entry: TowerEntry
    files: dict[str, Path]  # path below the artifact's root -> local file
    sources: tuple[SourceRef, ...]
    op_libraries: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TowerResult:
    """What one rank made of one tower: exported, or failed."""

    planned: TowerToExport
    exported: ExportedTower | None = None
    sent: tuple[StoredFile, ...] = ()  # of an exported one: its files, where the artifact is to be
    unsent: Failure | None = None  # why they are not there: then nothing of the attempt is published
    failure: Failure | None = None


class Diagnostics:
    """Texts that a failure will want to have beside it; none is made before that."""

    def __init__(self, folder: Path) -> None:
        """Write below `folder`, which need not exist."""
        self._folder = folder
        self._texts: dict[str, Callable[[], str]] = {}

    def keep(self, name: str, text: Callable[[], str]) -> None:
        """Should a later step fail, write `text` to the file `name`."""
        self._texts[name] = text

    def write(self, error: BaseException) -> None:
        """Write what was kept, and the traceback; what cannot be written is left out."""
        self._folder.mkdir(parents=True, exist_ok=True)
        trace = traceback.format_exception(error)
        (self._folder / "traceback.txt").write_text("".join(trace))
        for name, text in self._texts.items():
            try:
                (self._folder / name).write_text(text())
            except Exception:  # the failure itself must be told all the same
                log.exception("evidence_lost", extra={"name_of_file": name})

"""One try at one export, and what a rank makes of its towers."""

from dataclasses import dataclass
from pathlib import Path

from exporter.manifest import SourceRef, TowerEntry
from exporter.outcome import Failure
from exporter.planning import PlannedTower
from exporter.spec import ExportSpec


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try at one export: what is asked for, under which id, and where to work."""

    job_id: str
    spec: ExportSpec
    workspace: Path
    config_uri: str | None = None  # where the spec's inline config was read, if anywhere
    folder: str | None = None  # of the artifact, below the spec's output_uri; default: the job's id
    replace_unfinished: bool = False  # overwrite what an earlier attempt left without a manifest


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

    planned: PlannedTower
    exported: ExportedTower | None = None
    failure: Failure | None = None

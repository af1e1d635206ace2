"""The task of one `slipway check`: the model or artifact to check, and how thoroughly."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from exporter.check.artifact import PublishedArtifact
from exporter.spec import ExportSpec


@dataclass(frozen=True, kw_only=True)
class CheckTask:
    """A model to check by packages compiled now, or an artifact whose packages are checked."""

    spec: ExportSpec
    published: PublishedArtifact | None = None
    families: Collection[str] = ()  # custom families whose packages may be loaded
    sizes: int = 16  # to draw
    seed: int = 20
    code_cache: str | None = None
    minify_into: Path | None = None  # where to keep the smallest graph that fails; None: do not search

"""The files that a job has published, as its manifests list them."""

from dataclasses import dataclass
from typing import ClassVar
from urllib.parse import quote

from exporter.artifact.read import root_of
from exporter.manifest import FileRef, Manifest
from exporter.spec import Target
from jobs.model import Job, TowerProgress
from service.dashboard.render import Page


@dataclass(frozen=True, kw_only=True)
class PublishedFile:
    """One file of an artifact, and where the service gives it out."""

    file: FileRef
    address: str


@dataclass(frozen=True, kw_only=True)
class TargetFiles:
    """The files of the artifact for one target, or the reason why there are none to show."""

    job: Job
    target: Target | None  # None if the job has only one
    uri: str | None = None  # of the manifest
    manifest: Manifest | None = None
    is_signed: bool = False
    problem: str = ""

    @property
    def root(self) -> str:
        return root_of(self.uri or "")

    @property
    def files(self) -> tuple[PublishedFile, ...]:
        """Every file once, towers in their order, packages first."""
        towers = self.manifest.towers if self.manifest else ()
        files = {file.path: file for tower in towers for file in tower.all_files}
        return tuple(PublishedFile(file=each, address=self.address_of(each.path)) for each in files.values())

    @property
    def size(self) -> int:
        """The bytes of all files beside the manifest."""
        return sum(each.file.size for each in self.files)

    @property
    def packages(self) -> tuple[TowerProgress, ...]:
        """The towers whose packages the job's record knows, for where the manifest cannot be read."""
        return tuple(
            tower for tower in self.job.towers if tower.package_uri and tower.target in (None, self.target)
        )

    def address_of(self, path: str) -> str:
        """Return the path at which the service gives out a file of the artifact."""
        target = f"?target={self.target}" if self.target else ""
        return f"/exports/{self.job.id}/files/{quote(path)}{target}"

    @property
    def download(self) -> str:
        """The command that fetches and checks all files."""
        return f"slipway download {self.job.id}" + (f" --target {self.target}" if self.target else "")


@dataclass(frozen=True, kw_only=True)
class FilesPage(Page):
    """The files of all targets of a job, with their digests."""

    template: ClassVar[str] = "files.html"
    every: ClassVar[int] = 0

    job: Job
    targets: tuple[TargetFiles, ...]

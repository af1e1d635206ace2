"""The pages of models: all of them, one with its releases, and the figures of these as plots."""

from dataclasses import dataclass
from typing import ClassVar

from jobs.control.promotions import PromotionNote
from jobs.control.releases import Release
from jobs.ids import JobId
from jobs.model import Job
from service.access.callers import Scope
from service.dashboard.models.figures import ReleaseRecord, find_trends
from service.dashboard.models.trends import Trend, TrendChart, draw_trend
from service.dashboard.render import Page


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """A model in the list, with its latest release and the promoted one."""

    name: str
    family: str | None
    latest: Release | None
    promoted: Release | None
    note: PromotionNote | None  # of the promotion


@dataclass(frozen=True, kw_only=True)
class ModelsPage(Page):
    """The models that have a release, by name."""

    template: ClassVar[str] = "models.html"
    here: ClassVar[str] = "models"
    every: ClassVar[int] = 15

    rows: tuple[ModelRow, ...]
    next: str | None
    is_first: bool


@dataclass(frozen=True, kw_only=True)
class ModelPage(Page):
    """One model: its releases, the promoted one, and how it became so."""

    template: ClassVar[str] = "model.html"
    here: ClassVar[str] = "models"
    every: ClassVar[int] = 5

    name: str
    releases: tuple[ReleaseRecord, ...]  # newest first; with the promoted one, however old
    promoted: Release | None
    previous: Release | None  # what rolling back would promote
    notes: tuple[PromotionNote, ...]  # newest first
    changed: bool = False  # whether a form was refused because the promoted release has changed

    @property
    def may_promote(self) -> bool:
        return self.reader is not None and self.reader.may(Scope.ADMIN)

    @property
    def note(self) -> PromotionNote | None:
        """The note of the promoted release; None where a version promoted it that kept no notes."""
        return note_of(self.promoted, self.notes)

    @property
    def family(self) -> str | None:
        return next((record.job.family for record in self.releases if record.job), None)

    @property
    def version(self) -> str:
        """A text that changes with the figures."""
        return " ".join([*(record.release.job_id for record in self.releases), self.promoted_id or ""])

    @property
    def promoted_id(self) -> JobId | None:
        return self.promoted.job_id if self.promoted else None


@dataclass(frozen=True, kw_only=True)
class FiguresPage(Page):
    """The figures of a model's releases."""

    template: ClassVar[str] = "figures.html"
    here: ClassVar[str] = "models"
    every: ClassVar[int] = 0

    name: str
    oldest_first: tuple[ReleaseRecord, ...]
    promoted_id: str | None
    unread: int  # manifests that cannot be read

    @property
    def trends(self) -> tuple[tuple[Trend, TrendChart], ...]:
        """The quantities with their plots."""
        names = [record.name for record in self.oldest_first]
        ids = [record.release.job_id for record in self.oldest_first]
        marked = ids.index(JobId(self.promoted_id)) if self.promoted_id in ids else None
        return tuple((trend, draw_trend(trend, names, marked)) for trend in find_trends(self.oldest_first))


def note_of(promoted: Release | None, notes: tuple[PromotionNote, ...]) -> PromotionNote | None:
    """Return the note of how the promoted release became so; None if the latest note is of another one."""
    latest = next(iter(notes), None)
    return latest if latest and promoted and latest.job_id == promoted.job_id else None


def job_name(job: Job | None) -> str:
    """Return the end of a job's checkpoint URI; empty for a job that cannot be read."""
    parts = [part for part in job.spec.checkpoint_uri.split("/") if part] if job else []
    return "/".join(parts[-2:])

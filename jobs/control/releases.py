"""A model's releases: the artifacts of its successful exports, and which of them is promoted."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Protocol

from pydantic import Field

from exporter.spec import Frozen, Target, TowerName
from jobs.control.promotions import MOST_PROMOTIONS, PromotionKind, PromotionNote
from jobs.errors import JobNotFound, ModelNotFound, NoArtifact, RecordUnreadable, ReleaseNotBlessed
from jobs.ids import JobId
from jobs.model import ANYONE, Job, JobState, TowerState
from jobs.stores.job_store import JobRecords
from jobs.verdicts import ReleaseVerdict, describe_objections, is_blessed

NO_LABELS: Mapping[str, str] = {}
PROMOTED = "promoted release"  # in the error of a model without one


class ReleasedTower(Frozen):
    """One tower's package, and the job that published it."""

    name: TowerName
    target: Target | None = None  # the package's target, if the export named targets
    job_id: JobId
    package_uri: str
    package_size: int | None
    digest: str | None
    manifest_uri: str


class Release(Frozen):
    """One successful export of a model; a retry's release includes the towers of the job it retries."""

    model: str
    job_id: JobId
    finished_at: datetime | None
    labels: Mapping[str, str]
    towers: tuple[ReleasedTower, ...]
    # Left out of a release that no gate judged, because older programs do not know the fields.
    blessed: bool | None = Field(
        default=None,
        exclude_if=lambda blessed: blessed is None,
        description="Whether it may be promoted without `force`; null or missing: no release gate judged it.",
    )
    verdicts: tuple[ReleaseVerdict, ...] = Field(
        default=(),
        exclude_if=lambda verdicts: not verdicts,
        description="Verdicts of the release gate, one for each target.",
    )

    @property
    def objections(self) -> str:
        """The figures that stand against the release, as a sentence; empty if nothing does."""
        if self.blessed is not False:
            return ""
        return describe_objections(self.verdicts) or "it was not judged for every target"


@dataclass(frozen=True)
class ModelPage:
    """Model names in order; `next` continues after the last of them, None at the end."""

    names: tuple[str, ...]
    next: str | None


class ReleasePointers(Protocol):
    """Stores which jobs released a model, and which release is promoted; every change is atomic."""

    def models(self, *, limit: int, after: str | None) -> ModelPage: ...

    def model_at(self, position: int) -> str | None:
        """Return the model at a position among all by name; None behind the last."""
        ...

    def jobs(self, model: str) -> tuple[JobId, ...]:
        """Return the model's successful jobs, newest first; one may have been removed since."""
        ...

    def get_promoted(self, model: str) -> Release | None: ...

    def has_promoted(self, model: str) -> bool:
        """Return whether a release is promoted, although its record may be damaged."""
        ...

    def get_previous(self, model: str) -> Release | None:
        """Return the release that rolling back would promote; None without one."""
        ...

    def promotions(self, model: str) -> tuple[PromotionNote, ...]:
        """Return the latest changes of the promoted release, newest first."""
        ...

    def promote(self, release: Release, noted: PromotionNote) -> None:
        """Promote a release, and note the change; nothing changes if it is promoted already."""
        ...

    def roll_back(self, model: str, noted: PromotionNote, expected: JobId | None = None) -> Release | None:
        """Promote the previously promoted release again; return None, and change nothing, without one.

        Nor is anything changed if the promoted release is not that of the job `expected`.
        The change is noted with the job of the release that becomes the promoted one.
        """
        ...


@dataclass(frozen=True)
class Releases:
    """The operations on releases that the API's routes call."""

    store: JobRecords
    pointers: ReleasePointers

    def models(self, *, limit: int, after: str | None = None) -> ModelPage:
        """Return the models that have a release; `after` is the previous page's `next`."""
        return self.pointers.models(limit=limit, after=after)

    def find_latest(self, model: str, labels: Mapping[str, str] = NO_LABELS) -> Release:
        """Return the newest release whose labels include these."""
        if (release := self._find_release(self._newest(model), labels)) is not None:
            return release
        raise ModelNotFound(model, "successful export with these labels" if labels else "successful export")

    def get_promoted(self, model: str) -> Release:
        if (release := self.pointers.get_promoted(model)) is None:
            raise ModelNotFound(model, PROMOTED)
        return release

    def get_previous(self, model: str) -> Release | None:
        """Return the release that rolling back would promote; None without one."""
        return self.pointers.get_previous(model)

    def promotions(self, model: str) -> tuple[PromotionNote, ...]:
        """Return the latest changes of the promoted release, newest first."""
        return self.pointers.promotions(model)

    def newest(self, model: str, *, limit: int) -> tuple[Release, ...]:
        """Return the newest releases of a model, newest first.

        Raises:
            ModelNotFound: it has none.
        """
        found = tuple(islice(self._find_releases(self._newest(model), NO_LABELS), limit))
        if not found:
            raise ModelNotFound(model, "successful export")
        return found

    def promote(self, model: str, job_id: JobId | None, *, force: bool = False, by: str = ANYONE) -> Release:
        """Promote one job's release, or the latest one, in the name of a caller.

        Raises:
            ReleaseNotBlessed: the release gate objects to it; with `force` it is promoted all the same.
        """
        release = self.find_latest(model) if job_id is None else self._make_release(self.store.get(job_id))
        if release.model != model:
            raise ModelNotFound(model, f"release by job {job_id}")
        if release.blessed is False and not force:
            raise ReleaseNotBlessed(model, release.job_id, release.objections)
        noted = self._note(PromotionKind.PROMOTE, release.job_id, by)
        self.pointers.promote(release, noted.model_copy(update={"forced": release.blessed is False}))
        return release

    def roll_back(self, model: str, by: str = ANYONE, *, expected: JobId | None = None) -> Release:
        """Promote the previous release, in the name of a caller.

        Raises:
            ModelNotFound: there is none, or the promoted release is not that of the job `expected`.
        """
        noted = self._note(PromotionKind.ROLL_BACK, JobId(""), by)
        if (release := self.pointers.roll_back(model, noted, expected)) is None:
            raise ModelNotFound(model, "earlier promoted release")
        return release

    def _note(self, kind: PromotionKind, job_id: JobId, by: str) -> PromotionNote:
        return PromotionNote(at=self.store.now(), by=by, kind=kind, job_id=job_id)

    def _newest(self, model: str) -> tuple[JobId, ...]:
        """Return the model's successful jobs, newest first."""
        return self.pointers.jobs(model)

    def _find_release(self, newest_first: Iterable[JobId], labels: Mapping[str, str]) -> Release | None:
        return next(self._find_releases(newest_first, labels), None)

    def _find_releases(self, newest_first: Iterable[JobId], labels: Mapping[str, str]) -> Iterator[Release]:
        for job_id in newest_first:
            try:
                job = self.store.get(job_id)
                if labels.items() <= job.labels.items():
                    yield self._make_release(job)
            except (JobNotFound, NoArtifact, RecordUnreadable):
                continue

    def _make_release(self, job: Job) -> Release:
        if job.state is not JobState.SUCCEEDED or job.model is None:
            raise NoArtifact(
                f"job {job.id} is not a release: it has {job.state}, of model {job.model or '(none named)'}",
                hint="a release needs `model` in the request and every tower's success; retry failed towers",
            )
        chain = _chain(job, self.store)
        verdicts = tuple({verdict.target: verdict for each in chain for verdict in each.verdicts}.values())
        towers = _towers_of(chain)
        targets = {tower.target for tower in towers}
        is_judged = job.spec.release_gate is not None
        return Release(
            model=job.model,
            job_id=job.id,
            finished_at=job.finished_at,
            labels=job.labels,
            towers=towers,
            blessed=is_blessed(verdicts, targets) if is_judged else None,
            verdicts=verdicts if is_judged else (),
        )


def list_towers(job: Job, store: JobRecords) -> tuple[ReleasedTower, ...]:
    """Return the towers that a job has published, with those of the jobs that it retries.

    Raises:
        JobNotFound, RecordUnreadable: the record of a job that it retries is gone, or damaged.
    """
    return _towers_of(_chain(job, store))


def _chain(job: Job, store: JobRecords) -> list[Job]:
    """Return the job after the jobs that it retries: a tower's package is the latest one published."""
    chain = [job]
    while (earlier := chain[0].retry_of) is not None:
        chain.insert(0, store.get(earlier))
    return chain


def _towers_of(chain: Iterable[Job]) -> tuple[ReleasedTower, ...]:
    towers = {(tower.name, tower.target): tower for job in chain for tower in _released_towers(job)}
    return tuple(towers.values())


def _released_towers(job: Job) -> list[ReleasedTower]:
    return [
        ReleasedTower(
            name=tower.name,
            target=tower.target,
            job_id=job.id,
            package_uri=tower.package_uri,
            package_size=tower.package_size,
            digest=tower.digest,
            manifest_uri=job.manifest_uris.get(tower.target or "", job.manifest_uri),
        )
        for tower in job.towers
        if tower.state is TowerState.SUCCEEDED and tower.package_uri and job.manifest_uri
    ]


class MemoryPointers:
    """Release pointers in memory, for tests, which set `released` themselves."""

    def __init__(self) -> None:
        """Start without releases."""
        self.released: dict[str, list[JobId]] = {}
        self._promoted: dict[str, list[Release]] = {}
        self._noted: dict[str, list[PromotionNote]] = {}

    def models(self, *, limit: int, after: str | None) -> ModelPage:
        names = [name for name in sorted(self.released) if after is None or name > after]
        return ModelPage(tuple(names[:limit]), names[limit - 1] if len(names) > limit else None)

    def model_at(self, position: int) -> str | None:
        return next(iter(sorted(self.released)[position:]), None)

    def jobs(self, model: str) -> tuple[JobId, ...]:
        return tuple(sorted(self.released.get(model, ()), reverse=True))

    def get_promoted(self, model: str) -> Release | None:
        return next(iter(self._promoted.get(model, ())), None)

    def has_promoted(self, model: str) -> bool:
        return self.get_promoted(model) is not None

    def get_previous(self, model: str) -> Release | None:
        return next(iter(self._promoted.get(model, ())[1:]), None)

    def promotions(self, model: str) -> tuple[PromotionNote, ...]:
        return tuple(self._noted.get(model, ())[:MOST_PROMOTIONS])

    def promote(self, release: Release, noted: PromotionNote) -> None:
        if (now := self.get_promoted(release.model)) is None or now.job_id != release.job_id:
            self._promoted.setdefault(release.model, []).insert(0, release)
            self._noted.setdefault(release.model, []).insert(0, noted)

    def roll_back(self, model: str, noted: PromotionNote, expected: JobId | None = None) -> Release | None:
        history = self._promoted.get(model, [])
        if len(history) < 2 or expected not in (None, history[0].job_id):
            return None
        del history[0]
        named = noted.model_copy(update={"job_id": history[0].job_id})
        self._noted.setdefault(model, []).insert(0, named)
        return history[0]

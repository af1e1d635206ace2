"""Releases that a job's release gate needs beside the job's own: its baseline, and what a retry keeps."""

from collections.abc import Callable, Iterable, Mapping

from pydantic import Field

from exporter.manifest import MANIFEST_NAME
from exporter.options.release_gate import PROMOTED_BASELINE, ReleaseGate
from exporter.reports.release_report import ReleasedArtifacts
from exporter.spec import Frozen, Target, TowerName
from exporter.storage.uris import NO_RULES, NamedUri, UriRules
from jobs.control.releases import MemoryPointers, Release, ReleasedTower, ReleasePointers, list_towers
from jobs.errors import BaselineNotUsable, JobNotFound, RecordUnreadable
from jobs.ids import JobId, is_job_id
from jobs.model import Job, JobState
from jobs.stores.job_store import JobRecords
from jobs.stores.visible_jobs import VisibleJobs


class ReleaseContext(Frozen):
    """Earlier artifacts that an attempt needs to judge its own."""

    baseline: ReleasedArtifacts | None = None
    siblings: Mapping[TowerName, str] = Field(default_factory=dict)  # tower -> artifact of the retried job
    obstacle: str = ""  # why the release cannot be judged, where that is known beforehand

    @property
    def artifact_uris(self) -> tuple[str, ...]:
        """The artifacts that it names, each once."""
        named = self.baseline.towers.values() if self.baseline else ()
        return tuple(dict.fromkeys([*named, *self.siblings.values()]))


NO_CONTEXT = ReleaseContext()
FindContext = Callable[[Job, JobRecords], ReleaseContext]


def require_baseline(gate: ReleaseGate | None, store: JobRecords, uris: UriRules) -> None:
    """Refuse a baseline that names no successful job which the owner of these URIs sees.

    Raises:
        BaselineNotUsable: there is none; one that is hidden from the owner is answered in the same words.
    """
    if gate is not None and gate.baseline != PROMOTED_BASELINE:
        _get_named(gate.baseline, _visible(store, uris))


def find_release_context(
    job: Job, store: JobRecords, pointers: ReleasePointers | None = None
) -> ReleaseContext:
    """Return what the job's release gate needs, as far as the job's owner may see it.

    A job without a gate needs nothing. No promoted release is no obstacle; a promoted one whose record cannot
    be read is one, and a baseline or a retried job that has been removed since the job was accepted.
    """
    gate = job.spec.release_gate
    if gate is None:
        return NO_CONTEXT
    target = job.current_target if job.spec.target else None
    try:
        siblings = _find_siblings(job, store, target)
        if gate.baseline == PROMOTED_BASELINE:
            found = _find_promoted(job, store, pointers or MemoryPointers())
        else:
            named = _get_named(gate.baseline, _visible(store, job.uris))
            found = named.id, list_towers(named, store)
    except (BaselineNotUsable, JobNotFound, RecordUnreadable) as error:
        return ReleaseContext(obstacle=error.message)
    artifacts = _artifacts(found[1], target) if found else {}
    if found and not artifacts and gate.baseline != PROMOTED_BASELINE:
        return ReleaseContext(obstacle=f"the baseline, job {found[0]}, has no packages for {target}")
    baseline = ReleasedArtifacts(job_id=found[0], towers=artifacts) if found and artifacts else None
    return ReleaseContext(baseline=baseline, siblings=siblings)


def _visible(store: JobRecords, uris: UriRules) -> JobRecords:
    return store if uris == NO_RULES else VisibleJobs(store, uris)


def _get_named(baseline: str, seen: JobRecords) -> Job:
    try:
        if not is_job_id(baseline):
            raise JobNotFound(baseline)
        job = seen.get(JobId(baseline))
    except JobNotFound:
        raise BaselineNotUsable(f"there is no job {baseline}") from None
    if job.state is not JobState.SUCCEEDED:
        raise BaselineNotUsable(f"job {baseline} is {job.state}, and no release")
    return job


def _find_promoted(
    job: Job, store: JobRecords, pointers: ReleasePointers
) -> tuple[str, tuple[ReleasedTower, ...]] | None:
    """Return the promoted release of the job's model; None if there is none, or none that its owner sees.

    Raises:
        BaselineNotUsable: there is one that cannot be read, and the owner may know that: it lies where the
            owner writes, or the owner is bound to no place.
    """
    if job.model is None:
        return None
    release = pointers.get_promoted(job.model)
    if release is None:
        if job.uris == NO_RULES and pointers.has_promoted(job.model):
            raise BaselineNotUsable(f"the record of the promoted release of {job.model} is damaged")
        return None
    if job.uris != NO_RULES:
        try:
            if not VisibleJobs(store, job.uris).shows(store.get(release.job_id)):
                return None
        except (JobNotFound, RecordUnreadable) as error:
            if not _lies_below(release, job.uris):
                return None
            raise BaselineNotUsable(
                f"the promoted release of {job.model} cannot be compared with: {error.message}"
            ) from None
    return release.job_id, release.towers


def _lies_below(release: Release, uris: UriRules) -> bool:
    """Return whether all of a release lies where these rules let jobs write."""
    return all(
        uris.allow(NamedUri(field="output_uri", uri=tower.manifest_uri, is_output=True))
        for tower in release.towers
    )


def _find_siblings(job: Job, store: JobRecords, target: Target | None) -> dict[TowerName, str]:
    """Return the artifacts of the towers of this target that the retried jobs have published.

    A retry was accepted only because its owner sees the job that it retries.
    """
    if job.retry_of is None:
        return {}
    own = {tower.name for tower in job.current_towers}
    kept = [tower for tower in list_towers(store.get(job.retry_of), store) if tower.target == target]
    return {tower.name: _artifact_of(tower) for tower in kept if tower.name not in own}


def _artifacts(towers: Iterable[ReleasedTower], target: Target | None) -> dict[TowerName, str]:
    """Return the artifacts of the packages for a target, or of those for the only target that there is."""
    by_target: dict[Target | None, dict[TowerName, str]] = {}
    for tower in towers:
        by_target.setdefault(tower.target, {})[tower.name] = _artifact_of(tower)
    only = next(iter(by_target.values())) if len(by_target) == 1 else {}
    return by_target.get(target, only)


def _artifact_of(tower: ReleasedTower) -> str:
    return tower.manifest_uri.removesuffix(f"/{MANIFEST_NAME}")

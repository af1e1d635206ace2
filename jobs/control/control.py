"""The operations that callers have on jobs: submit, get, list, cancel, retry, delete."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from exporter.errors import SourceNotFound, StorageError
from exporter.spec import ExportOptions, ExportSpec, TowerName, device_of
from exporter.storage.places import Places
from exporter.storage.uris import ANYWHERE, NO_RULES, FileRoots, UriRules, require_sound_uris, uris_of
from exporter.torch_releases import TorchRelease
from jobs.control.baselines import require_baseline
from jobs.control.content import Identify, compute_content_key
from jobs.control.sources import BoundedLook, remember, require_sources
from jobs.errors import ConfigNotFound, JobNotFound, RecordUnreadable, TorchUnserved
from jobs.ids import JobId, is_job_id, new_job_id
from jobs.lease.leases import update_job
from jobs.model import ANYONE, Job, JobState, TowerProgress
from jobs.queue import JobQueue
from jobs.request import JobOptions, Priority
from jobs.route import Route
from jobs.spec import JobSpec
from jobs.stores.job_store import JobPage, JobRecords, JobStore, NewJob
from jobs.stores.visible_jobs import HiddenJobs, VisibleJobs

_SCAN = 200  # queued jobs read per page


@dataclass(frozen=True)
class Plan:
    """A spec that was checked before anything runs, and the towers it exports."""

    spec: ExportSpec  # pinned: it holds the text of its config
    towers: tuple[TowerName, ...]
    family: str | None = None  # kind of model


# Reads and checks a spec's pipeline config; raises an ExportError that says what is wrong with it.
Planner = Callable[[ExportSpec], Plan]


@dataclass(frozen=True)
class Owner:
    """The owner of a job, with the owner's quotas and allowed places."""

    name: str = ANYONE
    max_queued: int | None = None
    max_running: int | None = None
    uris: UriRules = NO_RULES  # places that its jobs may read and write


NO_OPTIONS = JobOptions()
NO_OWNER = Owner()


@dataclass(frozen=True)
class JobControl:
    """The operations on jobs that the API's routes call."""

    store: JobRecords
    queue: JobQueue
    plan: Planner
    identify: Identify = field(default_factory=BoundedLook)
    refuse_missing: bool = True  # exports whose sources are surely not there
    folders: FileRoots = ANYWHERE  # folders of this machine that jobs may use
    max_config_bytes: int | None = None  # that the configs of one owner's jobs may take
    trace: Callable[[], str | None] = lambda: None  # returns the traceparent of the current request
    now: Callable[[], datetime] | None = None  # the time at which jobs are created; default: the store's
    torch_releases: Callable[[], Collection[TorchRelease]] | None = None  # that jobs may name; None: any
    hidden: HiddenJobs = field(default_factory=HiddenJobs)  # jobs that bound callers do not see

    def seen_within(self, rules: UriRules) -> Self:
        """Return the same operations for a caller to whom only the jobs within `rules` exist."""
        if rules == NO_RULES:
            return self
        return replace(self, store=VisibleJobs(self.store, rules, self.hidden.within(rules)))

    def places_of(self, job: Job) -> Places:
        """Return where a job may read and write on this machine, to read what it published."""
        return Places(folders=self.folders, rules=job.uris)

    def submit(
        self,
        spec: ExportSpec,
        options: JobOptions = NO_OPTIONS,
        owner: Owner = NO_OWNER,
        *,
        force: bool = False,
        job_id: JobId | None = None,
    ) -> Job:
        """Accept an export, or return the successful job that made the same artifact before.

        The job keeps the config's text, so a later change of the file does not affect it. If the caller
        chooses the `job_id`, a second call with it returns the job of the first.
        """
        new = self.prepare(spec, options, owner, force=force, job_id=job_id)
        return self.finish(new, self._add_job(new))

    def prepare(
        self,
        spec: ExportSpec,
        options: JobOptions = NO_OPTIONS,
        owner: Owner = NO_OWNER,
        *,
        force: bool = False,
        job_id: JobId | None = None,
    ) -> NewJob:
        """Check an export, and return its job, which is to be stored and then given to `finish`."""
        plan = self.plan_export(spec, owner)
        self._require_torch(plan.spec)
        require_baseline(plan.spec.release_gate, self.store, owner.uris)
        towers = tuple(
            TowerProgress(name=name, target=target)
            for target in plan.spec.target or (None,)
            for name in plan.towers
        )
        job = self._make_job(JobSpec.of(plan.spec), towers, options, owner)
        identify = remember(self.identify)
        if self.refuse_missing:
            require_sources(plan.spec, identify)
        key = compute_content_key(plan.spec, identify)
        origin = {"config_uri": spec.config_uri, "content_key": key, "id": job_id or job.id}
        origin["family"] = plan.family
        job = job.model_copy(update=origin)
        return NewJob(
            job=job,
            config=plan.spec.config or "",
            max_queued=owner.max_queued,
            max_config_bytes=self.max_config_bytes,
            unless_made=not force,
        )

    def finish(self, new: NewJob, instead: JobId | None) -> Job:
        """Return the job that was stored, or the one that was there `instead` of it.

        If that one is of no use, the new job is stored after all.
        """
        if instead is None:
            return new.job
        if instead == new.job.id:
            return self.store.get(instead)
        return self._get_if_same(instead, new.job) or self._add_or_get(replace(new, unless_made=False))

    def plan_export(self, spec: ExportSpec, owner: Owner = NO_OWNER) -> Plan:
        """Plan the spec if its owner may name the places that it names; raise the reason if not."""
        self._require_allowed(spec, owner)
        plan = self.plan(spec)
        self._require_allowed(plan.spec, owner)  # the config may name rows too
        return plan

    def require_readable_config(self, spec: ExportSpec, owner: Owner) -> None:
        """Raise UriNotAllowed if the owner may not read the spec's config."""
        require_sound_uris(spec)
        config = [named for named in uris_of(spec) if named.field == "config_uri"]
        owner.uris.require(config)
        self.folders.require(config)

    def retry(self, job_id: str, owner: Owner = NO_OWNER) -> Job:
        """Export the failed towers of a finished job again, as a new job with an artifact of its own.

        An artifact is written once, so the first one stays as it is; a model's release joins the two. The
        jobs share the text of the config, which is not read.
        """
        first = self.get(job_id)
        failed = first.towers_to_retry()
        names = tuple(dict.fromkeys(tower.name for tower in failed))
        targets = tuple(dict.fromkeys(tower.target for tower in failed if tower.target)) or None
        spec = first.spec.only(names).model_copy(update={"target": targets})
        spec = spec.model_copy(update={"device": device_of(spec.targets[0])}) if targets else spec
        self._require_allowed(spec, owner)
        self._require_torch(spec)
        job = self._make_job(spec, tuple(tower.reset() for tower in failed), first, owner)
        origin = {"config_uri": first.config_uri, "family": first.family, "retry_of": first.id}
        job = job.model_copy(update=origin)
        new = NewJob(
            job=job, config=None, max_queued=owner.max_queued, max_config_bytes=self.max_config_bytes
        )
        try:
            return self._add_or_get(new)
        except ConfigNotFound:  # an older program stored it with the first job, or that was removed meanwhile
            return self._add_or_get(replace(new, config=self.store.config_of(first)))

    def config_of(self, job: Job) -> str:
        """Return the text of a job's config, which may have megabytes."""
        return self.store.config_of(job)

    def spec_with_config(self, job: Job) -> ExportSpec:
        """Return the request of a job with the text of its config."""
        return job.spec.with_config(self.config_of(job))

    def get(self, job_id: str) -> Job:
        return self.store.get(_require_job_id(job_id))

    def revision(self, job_id: str) -> int:
        return self.store.revision(_require_job_id(job_id))

    def page(self, *, limit: int, state: JobState | None, before: str | None) -> JobPage:
        """Return jobs, newest first; `before` is the previous page's `next`."""
        return self.store.page(limit=limit, state=state, before=JobId(before) if before else None)

    def cancel(self, job_id: str) -> Job:
        """Cancel a job that was never started; ask the worker to stop one that was."""
        return update_job(self.store, _require_job_id(job_id), lambda job, now: job.request_cancel(now))

    def remove(self, job_id: str) -> Job:
        """Remove the record of a finished job; its artifacts stay."""
        while True:
            job = self.get(job_id).require_removable()
            if self.store.remove(job):
                return job

    def _require_allowed(self, spec: ExportOptions, owner: Owner) -> None:
        require_sound_uris(spec)
        owner.uris.require(uris_of(spec))
        self.folders.require(uris_of(spec))

    def _require_torch(self, spec: ExportOptions) -> None:
        if spec.torch is None or self.torch_releases is None:
            return
        if spec.torch not in (served := self.torch_releases()):
            raise TorchUnserved(spec.torch, served)

    def _make_job(
        self, spec: JobSpec, towers: tuple[TowerProgress, ...], options: JobOptions, owner: Owner
    ) -> Job:
        now = self.now() if self.now else self.store.now()
        return Job(
            id=new_job_id(),
            spec=spec,
            towers=towers,
            priority=options.priority,
            model=options.model,
            labels=options.labels,
            callback_url=options.callback_url,
            owner=owner.name,
            uris=owner.uris,
            running_limit=owner.max_running,
            traceparent=self.trace(),
            created_at=now,
            updated_at=now,
        )

    def _add_or_get(self, new: NewJob) -> Job:
        """Store and enqueue a job, and return it; or return the one that has its id already."""
        return new.job if self._add_job(new) is None else self.store.get(new.job.id)

    def _add_job(self, new: NewJob) -> JobId | None:
        """Store and enqueue a job, and return None; or return the job that is there instead."""
        return self.queue.enqueue_new(
            new.job,
            lambda messages: self.store.add(
                new.job,
                new.config,
                max_queued=new.max_queued,
                max_config_bytes=new.max_config_bytes,
                messages=messages,
                unless_made=new.unless_made,
            ),
        )

    def _get_if_same(self, job_id: JobId, options: JobOptions) -> Job | None:
        """Return the job that made the same artifact, if it did so for the same model.

        None if it or its manifest is gone. If that cannot be found out, exporting again is better than
        failing.
        """
        try:
            job = self.store.get(job_id)
            is_same_model = (job.model, job.labels) == (options.model, options.labels)
            if is_same_model and job.manifest_uri and self.identify(job.manifest_uri):
                return job
        except (JobNotFound, RecordUnreadable, SourceNotFound, StorageError):
            return None
        return None


def _require_job_id(job_id: str) -> JobId:
    if not is_job_id(job_id):
        raise JobNotFound(job_id)
    return JobId(job_id)


def enqueue_lost(store: JobStore, queue: JobQueue) -> tuple[JobId, ...]:
    """Enqueue queued jobs again that no message names; a second message does no harm."""
    by_route: dict[Route, dict[JobId, Priority]] = defaultdict(dict)
    now = store.now()
    for job in _list_queued(store):
        if not job.is_due(now) or job.cancel_requested:
            continue
        for route in job.pending_routes:
            by_route[route][job.id] = job.priority
    enqueued: list[JobId] = []
    for route, queued in by_route.items():
        undelivered = queue.find_undelivered(route)
        for job_id, priority in queued.items():
            if job_id not in undelivered:
                queue.enqueue(job_id, priority, route)
                enqueued.append(job_id)
    return tuple(dict.fromkeys(enqueued))


def _list_queued(store: JobStore) -> Iterator[Job]:
    before: JobId | None = None
    while True:
        page = store.page(limit=_SCAN, state=JobState.QUEUED, before=before)
        yield from page.jobs
        before = page.next
        if before is None:
            return

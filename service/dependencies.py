"""Dependencies of the routes: jobs, models and workers, each as the caller of the request may see them.

A route that shows something of jobs has it from here, and therefore only of jobs that its caller sees.
"""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from jobs.control.control import JobControl
from jobs.control.idempotency import Answers, MemoryAnswers
from jobs.control.releases import MemoryPointers, ReleasePointers, Releases
from jobs.control.visible_releases import VisibleReleases
from jobs.diagnostics.bundles import Bundles, MemoryBundles
from jobs.diagnostics.logs import JobLogs, MemoryLogs
from jobs.fleet.roster import Fleet, ReadAlive, Roster
from jobs.fleet.tallies import MemoryTallies, Tallies
from jobs.stores.job_store import JobTotals
from service.access.callers import Caller, Scope
from service.access.guard import Reader, scoped_caller_of
from service.errors import Forbidden
from service.settings import ServiceSettings
from service.submit.submission import AtOnce, Submission


@dataclass(frozen=True)
class Backend:
    """The stores that the API uses, created once per application; those not given are in memory."""

    jobs: JobControl
    roster: Roster
    totals: JobTotals  # of all jobs
    answers: Answers = field(default_factory=MemoryAnswers)
    logs: JobLogs = field(default_factory=MemoryLogs)
    tallies: Tallies = field(default_factory=MemoryTallies)
    pointers: ReleasePointers = field(default_factory=MemoryPointers)
    bundles: Bundles = field(default_factory=MemoryBundles)
    recently_alive: ReadAlive | None = None  # the roster's workers as of late; default: as of now
    at_once: AtOnce | None = None  # default: every export is accepted in a thread


def _backend(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    return backend


# `async`, so that FastAPI calls them at once, and not in its thread pool, which may be full.
async def _whole_backend(request: Request, caller: Reader) -> Backend:
    if not caller.sees_all:
        raise Forbidden(
            f"{caller.name} may not do this: it counts the jobs of everybody, and the key is bound to `uris`",
            hint="use a key that is not bound to `uris`, or one with the scope `admin`",
        )
    return _backend(request)


async def _jobs(request: Request, caller: Reader) -> JobControl:
    return _backend(request).jobs.seen_within(caller.sees)


async def _totals(request: Request, caller: Reader) -> JobTotals | None:
    return _backend(request).totals if caller.sees_all else None


async def _fleet(request: Request, caller: Reader) -> Fleet:
    return _recent_fleet(_backend(request), caller)


def _recent_fleet(backend: Backend, caller: Caller) -> Fleet:
    return Fleet(backend.recently_alive or backend.roster.alive, shows_jobs=caller.sees_all)


async def submission_of(request: Request) -> Submission:
    """Return what accepting an export for the sender of the request needs; refuse one who may not submit."""
    backend, caller = _backend(request), await scoped_caller_of(request, Scope.SUBMIT)
    return Submission(
        caller=caller,
        jobs=backend.jobs.seen_within(caller.sees),
        answers=backend.answers,
        workers=_recent_fleet(backend, caller),
        callbacks=request.app.state.hook_settings,
        at_once=backend.at_once,
    )


def fleet_of(request: Request, caller: Caller | None) -> Fleet:
    """Return the workers of now as a caller sees them; None stands for a caller without a key."""
    return Fleet(_backend(request).roster.alive, shows_jobs=caller is not None and caller.sees_all)


async def _answers(request: Request) -> Answers:
    return _backend(request).answers


async def _logs(request: Request) -> JobLogs:
    return _backend(request).logs


async def _bundles(request: Request) -> Bundles:
    return _backend(request).bundles


async def _models(request: Request, caller: Reader) -> Releases:
    backend = _backend(request)
    store = backend.jobs.seen_within(caller.sees).store
    return (Releases if caller.sees_all else VisibleReleases)(store, backend.pointers)


async def _settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


FailureBundles = Annotated[Bundles, Depends(_bundles)]
Everything = Annotated[Backend, Depends(_whole_backend)]  # only for callers who see all jobs
Jobs = Annotated[JobControl, Depends(_jobs)]
KeptAnswers = Annotated[Answers, Depends(_answers)]
Logs = Annotated[JobLogs, Depends(_logs)]
Models = Annotated[Releases, Depends(_models)]
Settings = Annotated[ServiceSettings, Depends(_settings)]
Submitting = Annotated[Submission, Depends(submission_of)]
Totals = Annotated[JobTotals | None, Depends(_totals)]  # None for callers who do not see all jobs
Workers = Annotated[Fleet, Depends(_fleet)]

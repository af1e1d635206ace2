"""Dependencies of the routes: the jobs with their logs and bundles, and the roster of workers."""

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from jobs.control.control import JobControl
from jobs.control.idempotency import Answers, MemoryAnswers
from jobs.control.releases import MemoryPointers, ReleasePointers, Releases
from jobs.diagnostics.bundles import Bundles, MemoryBundles
from jobs.diagnostics.logs import JobLogs, MemoryLogs
from jobs.fleet.roster import Roster
from jobs.fleet.tallies import MemoryTallies, Tallies
from service.settings import ServiceSettings


@dataclass(frozen=True)
class Backend:
    """The stores that the API uses, created once per application; those not given are in memory."""

    jobs: JobControl
    roster: Roster
    answers: Answers = field(default_factory=MemoryAnswers)
    logs: JobLogs = field(default_factory=MemoryLogs)
    tallies: Tallies = field(default_factory=MemoryTallies)
    pointers: ReleasePointers = field(default_factory=MemoryPointers)
    bundles: Bundles = field(default_factory=MemoryBundles)

    @property
    def releases(self) -> Releases:
        return Releases(self.jobs.store, self.pointers)


def _backend(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    return backend


# `async`, so that FastAPI calls them at once, and not in its thread pool, which may be full.
async def _everything(request: Request) -> Backend:
    return _backend(request)


async def _jobs(request: Request) -> JobControl:
    return _backend(request).jobs


async def _roster(request: Request) -> Roster:
    return _backend(request).roster


async def _answers(request: Request) -> Answers:
    return _backend(request).answers


async def _logs(request: Request) -> JobLogs:
    return _backend(request).logs


async def _bundles(request: Request) -> Bundles:
    return _backend(request).bundles


async def _models(request: Request) -> Releases:
    return _backend(request).releases


async def _settings(request: Request) -> ServiceSettings:
    settings: ServiceSettings = request.app.state.settings
    return settings


FailureBundles = Annotated[Bundles, Depends(_bundles)]
Everything = Annotated[Backend, Depends(_everything)]
Jobs = Annotated[JobControl, Depends(_jobs)]
KeptAnswers = Annotated[Answers, Depends(_answers)]
Logs = Annotated[JobLogs, Depends(_logs)]
Models = Annotated[Releases, Depends(_models)]
Settings = Annotated[ServiceSettings, Depends(_settings)]
Workers = Annotated[Roster, Depends(_roster)]

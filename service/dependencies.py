"""What the routes are given: the jobs and the roster of workers."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from jobs.control import JobControl
from jobs.roster import Roster


@dataclass(frozen=True)
class Backend:
    """What the API stands on, made once per application."""

    jobs: JobControl
    roster: Roster


def _backend(request: Request) -> Backend:
    backend: Backend = request.app.state.backend
    return backend


def _jobs(request: Request) -> JobControl:
    return _backend(request).jobs


def _roster(request: Request) -> Roster:
    return _backend(request).roster


Jobs = Annotated[JobControl, Depends(_jobs)]
Workers = Annotated[Roster, Depends(_roster)]

"""Routes of the dashboard: the list of jobs, and workers and queue; those of one job are in `job_pages`."""

from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, Query, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from jobs.model import Job, JobState
from jobs.stores.job_store import JobPage
from service.access.guard import Reader
from service.dashboard.pages import JobsPage, WorkersPage
from service.dashboard.render import STATIC, answer
from service.dashboard.route import PageRoute
from service.dashboard.search import find
from service.dependencies import Jobs, Totals, Workers
from service.routes.job_pages import change, show, texts
from service.routes.pages import calls, sign_in

_MOST_SHOWN = 100  # of the queue

router = APIRouter(route_class=PageRoute, include_in_schema=False)
for each in (show, texts, change):
    router.include_router(each.router)

IfNoneMatch = Annotated[str | None, Header()]
Words = Annotated[str, Query(max_length=200)]
Before = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$")]


class Fresh(StaticFiles):
    """Static files that a browser checks for changes each time, so that pages and scripts fit together."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file, or 304 if the browser has it already."""
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


def add_dashboard(app: FastAPI) -> None:
    """Serve the pages, with their styles and scripts."""
    app.include_router(router)
    app.include_router(calls.router)
    app.include_router(sign_in.router)
    app.mount("/static", Fresh(directory=STATIC), name="static")


@router.get("/")
def jobs_page(
    jobs: Jobs,
    totals: Totals,
    reader: Reader,
    q: Words = "",
    state: JobState | None = None,
    before: Before = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show all jobs, newest first."""
    page = JobsPage(
        reader=reader,
        found=find(jobs, q, state, before),
        counts={each: totals.count(each) for each in JobState} if totals else {},
        words=q.strip(),
        state=state,
        is_first=before is None,
    )
    return answer(page, if_none_match)


@router.get("/workers")
def workers_page(
    jobs: Jobs, totals: Totals, workers: Workers, reader: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """Show the workers that are alive, and the queue."""
    queued = jobs.page(limit=_MOST_SHOWN, state=JobState.QUEUED, before=None)
    page = WorkersPage(
        reader=reader,
        workers=tuple(sorted(workers.alive(), key=lambda worker: (worker.host, worker.pid))),
        running=jobs.page(limit=_MOST_SHOWN, state=JobState.RUNNING, before=None).jobs,
        queued=queued.jobs[::-1],
        waiting=totals.count(JobState.QUEUED) if totals else len(queued.jobs),
        more_wait=totals is None and queued.next is not None,
        oldest=totals.oldest(JobState.QUEUED) if totals else _oldest(queued),
    )
    return answer(page, if_none_match)


def _oldest(queued: JobPage) -> Job | None:
    """Return the last job of a page if no page comes after it."""
    return queued.jobs[-1] if queued.jobs and queued.next is None else None

"""Routes of the dashboard: workers and queue; those of one job are in `job_pages`, all others in `pages`."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from jobs.model import Job, JobState
from jobs.stores.job_store import JobPage
from service.access.guard import Reader
from service.dashboard.pages import WorkersPage
from service.dashboard.render import answer
from service.dashboard.route import PageRoute
from service.dependencies import Jobs, Totals, Workers
from service.routes.job_pages import change, show, texts

_MOST_SHOWN = 100  # of the queue

router = APIRouter(route_class=PageRoute, include_in_schema=False)
for each in (show, texts, change):
    router.include_router(each.router)

IfNoneMatch = Annotated[str | None, Header()]


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

"""The pages for people: jobs, one job, workers and queue."""

from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.staticfiles import StaticFiles

from exporter.errors import ExportError
from exporter.manifest import Manifest
from exporter.planning import PlanRequest
from exporter.publish import read_manifest
from jobs.model import Job, JobState
from service.dashboard.pages import ErrorPage, JobPage, JobsPage, PlanPage, ReportPage, WorkersPage
from service.dashboard.render import STATIC, answer
from service.dashboard.search import find
from service.dependencies import Jobs, Workers
from service.errors import CrossSiteRequest, InvalidRequest, status_of
from service.planning import view_plan

_MOST_SHOWN = 100  # of the queue
_MANIFESTS_KEPT = 128

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route whose failures are pages too."""

    def get_route_handler(self) -> Handler:
        """The route's handler, with errors rendered for people."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                first = error.errors()[0]
                return _error_page(InvalidRequest(f"{first['loc'][-1]}: {first['msg']}"))
            except ExportError as error:
                return _error_page(error)

        return handled


router = APIRouter(route_class=PageRoute, include_in_schema=False)

IfNoneMatch = Annotated[str | None, Header()]
Words = Annotated[str, Query(max_length=200)]
Before = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$")]


def add_dashboard(app: FastAPI) -> None:
    """Serve the pages and what they are drawn with."""
    app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")


@router.get("/")
def jobs_page(
    jobs: Jobs,
    q: Words = "",
    state: JobState | None = None,
    before: Before = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """All jobs, newest first."""
    found = find(jobs, q, state, before)
    page = JobsPage(found=found, words=q.strip(), state=state, is_first=before is None)
    return answer(page, if_none_match)


@router.get("/jobs/{job_id}")
def job_page(job_id: str, jobs: Jobs, if_none_match: IfNoneMatch = None) -> Response:
    """One job as it is now."""
    return answer(JobPage(job=jobs.get(job_id)), if_none_match)


@router.get("/jobs/{job_id}/plan")
def plan_page(job_id: str, jobs: Jobs, if_none_match: IfNoneMatch = None) -> Response:
    """The job's dim plan."""
    job = jobs.get(job_id)
    plan = view_plan(PlanRequest.model_validate(job.spec.model_dump()))
    return answer(PlanPage(job=job, plan=plan), if_none_match)


@router.get("/jobs/{job_id}/report")
def report_page(job_id: str, jobs: Jobs, if_none_match: IfNoneMatch = None) -> Response:
    """The job's verification, from its manifest."""
    job = jobs.get(job_id)
    return answer(_report(job), if_none_match)


@router.get("/workers")
def workers_page(jobs: Jobs, workers: Workers, if_none_match: IfNoneMatch = None) -> Response:
    """Workers and queue."""
    queued = jobs.page(limit=_MOST_SHOWN, state=JobState.QUEUED, before=None)
    page = WorkersPage(
        workers=tuple(sorted(workers.alive(), key=lambda worker: (worker.host, worker.pid))),
        running=jobs.page(limit=_MOST_SHOWN, state=JobState.RUNNING, before=None).jobs,
        queued=queued.jobs[::-1],
        more_queued=queued.next is not None,
    )
    return answer(page, if_none_match)


def require_same_site(request: Request) -> None:
    """Refuse a change that a page of another site asks for."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if foreign or site not in (None, "same-origin", "none"):
        raise CrossSiteRequest(
            "a page of another site asked for a change", hint="use this service's own pages"
        )


@router.post("/jobs/{job_id}/cancel", dependencies=[Depends(require_same_site)])
def cancel(job_id: str, jobs: Jobs) -> Response:
    """Cancel, and show the job again."""
    jobs.cancel(job_id)
    return RedirectResponse(f"/jobs/{job_id}", status.HTTP_303_SEE_OTHER)


def _error_page(error: ExportError) -> Response:
    code = status_of(type(error))
    page = ErrorPage(status=code.phrase, code=error.code, message=error.message, hint=error.hint)
    return answer(page, status=code)


def _report(job: Job) -> ReportPage:
    if job.manifest_uri is None:
        return ReportPage(job=job)
    try:
        return ReportPage(job=job, manifest=_manifest(job.manifest_uri))
    except ExportError as error:  # the job's page stays of use without it
        return ReportPage(job=job, problem=f"The manifest cannot be read: {error.message}.")


@lru_cache(maxsize=_MANIFESTS_KEPT)
def _manifest(uri: str) -> Manifest:
    """Manifests are written once."""
    return read_manifest(uri)

"""Routes of the dashboard: the pages of jobs, of one job, and of workers and queue."""

from functools import lru_cache, partial
from typing import Annotated

from fastapi import APIRouter, FastAPI, Header, Query, Response, status
from fastapi.responses import RedirectResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from exporter.artifact.read import read_manifest
from exporter.errors import ExportError
from exporter.manifest import Manifest
from exporter.spec import Target
from exporter.storage.places import Places
from exporter.towers.plan import PlanRequest
from jobs.model import Job, JobState
from jobs.stores.job_store import JobPage
from service.access.guard import Reader, Submitter
from service.audit import record
from service.dashboard.diff_page import DiffPage, DiffView
from service.dashboard.pages import (
    JobDetailsPage,
    JobsPage,
    LogPage,
    PlanPage,
    ReportPage,
    TargetReport,
    WorkersPage,
)
from service.dashboard.render import STATIC, answer
from service.dashboard.route import PageRoute
from service.dashboard.search import find
from service.dependencies import Jobs, Logs, Totals, Workers
from service.planning import view_plan
from service.routes.artifacts import find_comparison
from service.routes.pages import calls, sign_in

_MOST_SHOWN = 100  # of the queue
_MANIFESTS_KEPT = 128

router = APIRouter(route_class=PageRoute, include_in_schema=False)

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


@router.get("/jobs/{job_id}")
def job_page(job_id: str, jobs: Jobs, reader: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """Show the current state of one job."""
    return answer(JobDetailsPage(reader=reader, job=jobs.get(job_id)), if_none_match)


@router.get("/jobs/{job_id}/plan")
def plan_page(job_id: str, jobs: Jobs, reader: Reader, if_none_match: IfNoneMatch = None) -> Response:
    """Show the job's dim plan."""
    job = jobs.get(job_id)
    plan = view_plan(PlanRequest.model_validate(jobs.spec_with_config(job).model_dump()))
    return answer(PlanPage(reader=reader, job=job, plan=plan), if_none_match)


@router.get("/jobs/{job_id}/report")
def report_page(
    job_id: str,
    jobs: Jobs,
    reader: Reader,
    target: Target | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show the job's verification, from its manifests: for all of its targets, or for one of them."""
    job = jobs.get(job_id)
    several = len(job.spec.targets) > 1
    chosen = target if several and target in job.spec.targets else None
    targets = (chosen,) if chosen else job.spec.targets if several else (None,)
    reports = tuple(_report(jobs.places_of(job), job, each) for each in targets)
    return answer(ReportPage(reader=reader, job=job, reports=reports, chosen=chosen), if_none_match)


@router.get("/jobs/{job_id}/diff")
def diff_page(
    job_id: str,
    jobs: Jobs,
    reader: Reader,
    target: Target | None = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Show the comparison with the release that the job was judged against, or how to get one."""
    job = jobs.get(job_id)
    comparison, problem = None, "This export was compared with no other release."
    try:
        comparison = find_comparison(jobs, job, target)
    except ExportError as error:
        problem = f"There is no comparison to show: {error.message}."
    view = DiffView(comparison=comparison) if comparison else None
    return answer(DiffPage(reader=reader, job=job, view=view, problem=problem), if_none_match)


@router.get("/jobs/{job_id}/log")
def log_page(
    job_id: str, jobs: Jobs, logs: Logs, reader: Reader, if_none_match: IfNoneMatch = None
) -> Response:
    """Show the job's log, by tower and stage."""
    job = jobs.get(job_id)
    return answer(LogPage(reader=reader, job=job, parts=logs.read(job.id)), if_none_match)


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


@router.post("/jobs/{job_id}/cancel")
def cancel(job_id: str, jobs: Jobs, caller: Submitter) -> Response:
    """Cancel the job, and show its page again."""
    job = jobs.cancel(job_id)
    record(caller, "cancel", job.id)
    return _show(job)


@router.post("/jobs/{job_id}/retry")
def retry(job_id: str, jobs: Jobs, caller: Submitter) -> Response:
    """Export the failed towers again, and show the new job."""
    job = jobs.retry(job_id, caller.owner)
    record(caller, "retry", f"{job_id} as {job.id}")
    return _show(job)


def _show(job: Job) -> Response:
    return RedirectResponse(f"/jobs/{job.id}", status.HTTP_303_SEE_OTHER)


def _oldest(queued: JobPage) -> Job | None:
    """Return the last job of a page if no page comes after it."""
    return queued.jobs[-1] if queued.jobs and queued.next is None else None


def _report(places: Places, job: Job, target: Target | None) -> TargetReport:
    """Read the manifest of one target, or say why there is none to show."""
    uri = job.manifest_uris.get(target) if target else job.manifest_uri
    if uri is None:
        return TargetReport(
            target=target, problem="Nothing is published, so there is no verification to show."
        )
    try:
        return TargetReport(target=target, manifest=_manifest(uri, places, job.spec.output_uri))
    except ExportError as error:  # the rest of the page is still useful
        return TargetReport(target=target, problem=f"The manifest cannot be read: {error.message}.")


@lru_cache(maxsize=_MANIFESTS_KEPT)
def _manifest(uri: str, places: Places, output_uri: str) -> Manifest:
    """Read a manifest once: it never changes after it has been published."""
    return read_manifest(uri, opened=partial(places.open_output, output_uri))

"""Routes that plan, show and list exports."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response, status

from exporter.errors import (
    InvalidPipelineConfig,
    InvalidSpec,
    SourceNotFound,
    StorageError,
    UnsupportedConfig,
    UriNotAllowed,
)
from exporter.towers.plan import PlanRequest
from jobs.errors import (
    JobNotFound,
    RecordUnreadable,
)
from jobs.model import JobState
from service.access.guard import Reader, reading
from service.dependencies import Jobs, Workers
from service.errors import Forbidden, Unauthenticated, keyed_responses, problem_responses
from service.etag import etag_of, matches
from service.planning import view_plan
from service.schemas import JobList, JobView, PlanView

router = APIRouter(prefix="/exports", tags=["exports"])

IfNoneMatch = Annotated[str | None, Header(description="The ETag of the version you have.")]
Limit = Annotated[int, Query(ge=1, le=100)]
Cursor = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$", description="`next_cursor` of a page.")]


@router.post(
    "/plan",
    responses=problem_responses(
        InvalidSpec,
        UriNotAllowed,
        InvalidPipelineConfig,
        UnsupportedConfig,
        SourceNotFound,
        StorageError,
        Unauthenticated,
        Forbidden,
    ),
)
def plan(request: PlanRequest, jobs: Jobs, caller: Reader) -> PlanView:
    """Show the inputs that an export would have, and which of their sizes vary together; nothing is run."""
    jobs.require_readable_config(request, caller.owner)
    return view_plan(request)


@router.get(
    "",
    dependencies=[Depends(reading)],
    responses=keyed_responses(),
)
def list_exports(
    jobs: Jobs, workers: Workers, state: JobState | None = None, limit: Limit = 20, cursor: Cursor = None
) -> JobList:
    """List jobs, newest first, in one state or in any.

    A page may hold fewer jobs than `limit`; the last one has no `next_cursor`.
    """
    return JobList.of(jobs.page(limit=limit, state=state, before=cursor), workers.alive())


@router.get(
    "/{job_id}",
    dependencies=[Depends(reading)],
    response_model=JobView,
    responses={
        **keyed_responses(JobNotFound, RecordUnreadable),
        status.HTTP_304_NOT_MODIFIED: {"description": "The job has not changed since `If-None-Match`."},
    },
)
def show(
    job_id: str, jobs: Jobs, workers: Workers, response: Response, if_none_match: IfNoneMatch = None
) -> JobView | Response:
    """Return one job: its state, and its towers with their packages or failures."""
    view = JobView.of(jobs.get(job_id), workers.alive())
    headers = {"ETag": etag_of(view), "Cache-Control": "no-cache"}
    if matches(if_none_match, view):
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
    response.headers.update(headers)
    return view

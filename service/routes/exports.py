"""Submit, look at, list and cancel exports."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response, status

from exporter.errors import (
    InvalidPipelineConfig,
    InvalidSpec,
    SourceNotFound,
    StorageError,
    UnsupportedConfig,
)
from exporter.planning import PlanRequest
from exporter.spec import ExportSpec
from jobs.errors import JobFinished, JobNotFound, StoreUnavailable
from jobs.model import JobState
from service.dependencies import Jobs
from service.errors import problem_responses
from service.etag import etag_of, matches
from service.planning import view_plan
from service.schemas import JobList, JobView, PlanView

router = APIRouter(prefix="/exports", tags=["exports"])

IfNoneMatch = Annotated[str | None, Header(description="The ETag of what you have.")]
Limit = Annotated[int, Query(ge=1, le=100)]
Cursor = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$", description="`next_cursor` of a page.")]


@router.post(
    "",
    status_code=status.HTTP_202_ACCEPTED,
    responses=problem_responses(
        InvalidSpec, InvalidPipelineConfig, UnsupportedConfig, SourceNotFound, StorageError, StoreUnavailable
    ),
)
def submit(spec: ExportSpec, jobs: Jobs, response: Response) -> JobView:
    """Accept an export; poll the URL in `Location` for its progress."""
    job = jobs.submit(spec)
    response.headers["Location"] = f"/exports/{job.id}"
    response.headers["ETag"] = etag_of(job)
    return JobView.of(job)


@router.post(
    "/plan",
    responses=problem_responses(
        InvalidSpec, InvalidPipelineConfig, UnsupportedConfig, SourceNotFound, StorageError
    ),
)
def plan(request: PlanRequest) -> PlanView:
    """Show the inputs an export would have, and which of their sizes vary together; nothing is run."""
    return view_plan(request)


@router.get("", responses=problem_responses(StoreUnavailable))
def list_exports(
    jobs: Jobs, state: JobState | None = None, limit: Limit = 20, cursor: Cursor = None
) -> JobList:
    """Jobs, newest first, in one state or in any."""
    return JobList.of(jobs.page(limit=limit, state=state, before=cursor))


@router.get(
    "/{job_id}",
    response_model=JobView,
    responses={
        **problem_responses(JobNotFound, StoreUnavailable),
        status.HTTP_304_NOT_MODIFIED: {"description": "It has not changed since `If-None-Match`."},
    },
)
def show(
    job_id: str, jobs: Jobs, response: Response, if_none_match: IfNoneMatch = None
) -> JobView | Response:
    """One job: its state, its towers, their packages or what went wrong."""
    job = jobs.get(job_id)
    headers = {"ETag": etag_of(job), "Cache-Control": "no-cache"}
    if matches(if_none_match, job):
        return Response(status_code=status.HTTP_304_NOT_MODIFIED, headers=headers)
    response.headers.update(headers)
    return JobView.of(job)


@router.post(
    "/{job_id}/cancel",
    status_code=status.HTTP_202_ACCEPTED,
    responses=problem_responses(JobNotFound, JobFinished, StoreUnavailable),
)
def cancel(job_id: str, jobs: Jobs) -> JobView:
    """Cancel a queued job at once; stop a running one within seconds."""
    return JobView.of(jobs.cancel(job_id))

"""Routes that submit, plan, show and list exports."""

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Response, status

from exporter.errors import (
    FamilyNotListed,
    InvalidPipelineConfig,
    InvalidSpec,
    SourceNotFound,
    StorageError,
    UnsupportedConfig,
    UriNotAllowed,
)
from exporter.towers.plan import PlanRequest
from jobs.errors import (
    BaselineNotUsable,
    ConfigsTooLarge,
    JobNotFound,
    KeyInFlight,
    KeyReused,
    QuotaExceeded,
    RecordUnreadable,
    TorchUnserved,
)
from jobs.hooks.errors import CallbackRefused
from jobs.model import JobState
from jobs.request import ExportRequest
from service.access.guard import Reader, reading
from service.dependencies import Jobs, Submitting, Workers
from service.errors import Forbidden, Unauthenticated, keyed_responses, problem_responses
from service.etag import etag_of, matches
from service.idempotency import IdempotencyKey
from service.planning import view_plan
from service.schemas import JobList, JobView, PlanView

router = APIRouter(prefix="/exports", tags=["exports"])

IfNoneMatch = Annotated[str | None, Header(description="The ETag of the version you have.")]
Limit = Annotated[int, Query(ge=1, le=100)]
Cursor = Annotated[str | None, Query(pattern="^[0-9a-z]{26}$", description="`next_cursor` of a page.")]
# OpenAPI links from a new job to the calls that take its id, for tools that follow links.
_LINKS = {
    name: {"operationId": f"{name}_{path}_{method}", "parameters": {"job_id": "$response.body#/id"}}
    for name, path, method in (
        ("show", "exports__job_id_", "get"),
        ("cancel", "exports__job_id__cancel", "post"),
        ("retry", "exports__job_id__retry", "post"),
        ("delete", "exports__job_id_", "delete"),
        ("log", "exports__job_id__log", "get"),
        ("bundle", "exports__job_id__bundle", "get"),
        ("manifest", "exports__job_id__manifest", "get"),
    )
}


@router.post(
    "",
    status_code=status.HTTP_202_ACCEPTED,
    response_model=JobView,
    responses={
        **keyed_responses(
            InvalidSpec,
            UriNotAllowed,
            FamilyNotListed,
            InvalidPipelineConfig,
            UnsupportedConfig,
            SourceNotFound,
            StorageError,
            KeyReused,
            KeyInFlight,
            QuotaExceeded,
            ConfigsTooLarge,
            CallbackRefused,
            BaselineNotUsable,
            TorchUnserved,
        ),
        status.HTTP_202_ACCEPTED: {"links": _LINKS},
        status.HTTP_200_OK: {
            "links": _LINKS,
            "model": JobView,
            "description": "An earlier job made the same artifact: this is that job. `force` exports again.",
        },
    },
    openapi_extra={"security": [{"HTTPBearer": []}]},  # `Submitting` authenticates without a dependency
)
async def submit(
    request: ExportRequest,
    service: Submitting,
    key: IdempotencyKey = None,
) -> Response:
    """Accept an export; poll the URL in `Location` for its progress, or follow its events."""
    return await service.accept(request, key)


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

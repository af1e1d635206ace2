"""The route that submits an export."""

from fastapi import APIRouter, Response, status

from exporter.errors import (
    FamilyNotListed,
    InvalidPipelineConfig,
    InvalidSpec,
    SourceNotFound,
    StorageError,
    UnsupportedConfig,
    UriNotAllowed,
)
from jobs.errors import (
    BaselineNotUsable,
    ConfigsTooLarge,
    KeyInFlight,
    KeyReused,
    QuotaExceeded,
    TorchUnserved,
)
from jobs.hooks.errors import CallbackRefused
from jobs.request import ExportRequest
from service.dependencies import Submitting
from service.errors import keyed_responses
from service.idempotency import IdempotencyKey
from service.schemas import JobView
from service.submit.direct_route import DirectRoute

router = APIRouter(prefix="/exports", tags=["exports"], route_class=DirectRoute)

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

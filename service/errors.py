"""Every error as application/problem+json with a stable code: one table, one rendering."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from exporter import errors as export
from exporter.errors import ExportError
from jobs import errors as job
from service.schemas import FieldProblem, Problem

PROBLEM_JSON = "application/problem+json"
INVALID_REQUEST = "invalid_request"
RETRY_AFTER_S = 5

_SCHEMAS = "#/components/schemas/"

log = logging.getLogger(__name__)

# The nearest class decides.
STATUS: dict[type[ExportError], HTTPStatus] = {
    ExportError: HTTPStatus.INTERNAL_SERVER_ERROR,
    export.InvalidSpec: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.InvalidPipelineConfig: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.InvalidRows: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.CheckpointError: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.DimPlanViolated: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.SourceNotFound: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.InvalidArtifact: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.AlreadyPublished: HTTPStatus.CONFLICT,
    export.StorageError: HTTPStatus.BAD_GATEWAY,
    job.JobNotFound: HTTPStatus.NOT_FOUND,
    job.JobFinished: HTTPStatus.CONFLICT,
    job.IllegalMove: HTTPStatus.CONFLICT,
    job.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
}


def status_of(error: type[ExportError]) -> HTTPStatus:
    return next(STATUS[each] for each in error.__mro__ if each in STATUS)


def problem_responses(*errors: type[ExportError]) -> dict[int | str, dict[str, object]]:
    """What OpenAPI says of the errors that a route may answer with."""
    codes = {HTTPStatus.UNPROCESSABLE_ENTITY: [INVALID_REQUEST]}
    for error in errors:
        codes.setdefault(status_of(error), []).append(error.code)
    return {
        int(status): {
            "description": ", ".join(names),
            "content": {PROBLEM_JSON: {"schema": {"$ref": _SCHEMAS + "Problem"}}},
        }
        for status, names in codes.items()
    }


def problem(
    status: HTTPStatus,
    code: str,
    detail: str,
    *,
    hint: str = "",
    where: str = "",
    fields: tuple[FieldProblem, ...] = (),
) -> Response:
    """An answer that says what went wrong."""
    body = Problem(
        type=f"urn:slipway:problem:{code}",
        title=status.phrase,
        status=status,
        detail=detail,
        code=code,
        hint=hint,
        where=where,
        errors=fields,
    )
    waits = status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.BAD_GATEWAY)
    return Response(
        body.model_dump_json(),
        status_code=status,
        media_type=PROBLEM_JSON,
        headers={"Retry-After": str(RETRY_AFTER_S)} if waits else None,
    )


def handle_errors(app: FastAPI) -> None:
    """Render all errors of `app` as problems, and say so in its OpenAPI document."""
    document = app.openapi
    app.add_exception_handler(ExportError, _export_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _our_fault)
    app.openapi = lambda: _with_problem_schema(document())  # type: ignore[method-assign] # FastAPI's own way


def _with_problem_schema(document: dict[str, Any]) -> dict[str, Any]:
    """Define what `problem_responses` refers to; FastAPI only knows the models of successful answers."""
    schema = Problem.model_json_schema(ref_template=_SCHEMAS + "{model}")
    inner = schema.pop("$defs", {})
    document["components"]["schemas"].update({"Problem": schema, **inner})
    return document


def _export_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ExportError)
    return problem(status_of(type(error)), error.code, error.message, hint=error.hint, where=error.where)


def _invalid_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = tuple(FieldProblem(where=_field(each["loc"]), detail=each["msg"]) for each in error.errors())
    return problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        INVALID_REQUEST,
        f"{fields[0].where}: {fields[0].detail}" if fields[0].where else fields[0].detail,
        hint="correct the fields in `errors`; the schema is at /docs",
        where=fields[0].where,
        fields=fields,
    )


def _field(location: tuple[int | str, ...]) -> str:
    """The field without the part of the request it is in, which is plain from the route."""
    return ".".join(str(step) for step in location[1:])


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    answer = problem(status, status.name.lower(), f"{request.method} {request.url.path}: {error.detail}")
    answer.headers.update(error.headers or {})
    return answer


def _our_fault(request: Request, error: Exception) -> Response:
    log.error("request_failed", exc_info=error, extra={"path": request.url.path})
    return problem(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        "internal_error",
        "an error that Slipway did not foresee",
        hint="the service's log has the details",
    )

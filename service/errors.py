"""Errors as answers: each is application/problem+json with a stable code and a status of one table.

ExportError
├── InvalidRequest   a field of the request is missing, unknown or has a wrong value
├── RequestTooLarge  the request's body is larger than the service takes
├── RequestTooSlow   the request's body took longer to arrive than the service waits
├── TooManyBodies    the bodies of all requests in progress fill the memory set aside for them (retryable)
├── TooManyGuesses   the caller's address sent too many wrong keys or signatures
├── MethodNotAllowed the API has this path, but not with this method
├── CrossSiteRequest a page of another site asked for a change
├── Unauthenticated  the request carries no key that this service knows
├── IssuerUnreachable  the keys of the tokens' issuer could not be fetched (retryable)
├── Forbidden        the caller's key does not cover this call
└── NoSuchCall       the API does not have this path
"""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import Match

from exporter import errors as export
from exporter.errors import ExportError, fit_to_show
from exporter.frozen import in_words
from exporter.outcome import Failure
from exporter.redaction import MOST_NAMED, redact_and_escape
from jobs import errors as job
from jobs.hooks import errors as hook
from service.schemas import FieldProblem, Problem

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = 5
_RETRYABLE = {
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.BAD_GATEWAY,
}

_LONGEST_FIELD, _LONGEST_DETAIL = 100, 200  # characters
_METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
_SCHEMAS = "#/components/schemas/"
_KEPT_ON_PAGES = ("Allow", "Retry-After")

log = logging.getLogger(__name__)


class InvalidRequest(ExportError):
    """A field of the request is missing, unknown or has a wrong value."""

    code = "invalid_request"
    advice = "correct the fields in `errors`; the schema is at /docs"


class RequestTooLarge(ExportError):
    """The request's body is larger than the service takes."""

    code = "request_too_large"
    advice = "give contents, such as the pipeline config, by URI"


class RequestTooSlow(ExportError):
    """The request's body took longer to arrive than the service waits."""

    code = "request_too_slow"
    advice = "send the request again, without pauses in its body"
    retryable = True


class TooManyBodies(ExportError):
    """The bodies of all requests in progress fill the memory that is set aside for them."""

    code = "too_many_bodies"
    advice = "send the request again after the pause in `Retry-After`"
    retryable = True


class TooManyGuesses(ExportError):
    """The caller's address sent too many wrong keys or signatures."""

    code = "too_many_guesses"
    advice = "wait a minute, then send a key that the service knows"
    retryable = True


class MethodNotAllowed(ExportError):
    """The API has this path, but not with this method."""

    code = "method_not_allowed"
    advice = "the calls are at /docs"


class CrossSiteRequest(ExportError):
    """A page of another site asked for a change."""

    code = "cross_site_request"
    advice = "use the service's own pages, or call the API without a browser"


class Unauthenticated(ExportError):
    """The request carries no key that this service knows."""

    code = "unauthenticated"
    advice = "send `Authorization: Bearer <key>`"


class IssuerUnreachable(ExportError):
    """The keys of the tokens' issuer could not be fetched, so that tokens cannot be verified."""

    code = "issuer_unreachable"
    advice = "send the request again; if it keeps failing, check SLIPWAY_OIDC_JWKS_URL of the service"
    retryable = True


class Forbidden(ExportError):
    """The caller's key does not cover this call."""

    code = "forbidden"
    advice = "ask for a key with the scope that the message names"


class NoSuchCall(ExportError):
    """The API does not have this path."""

    code = "no_such_call"
    advice = "the calls are at /docs"


# The status of an error: that of its class, or of the nearest parent that is listed.
STATUS: dict[type[ExportError], HTTPStatus] = {
    ExportError: HTTPStatus.INTERNAL_SERVER_ERROR,
    export.InvalidSpec: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.UriNotAllowed: HTTPStatus.FORBIDDEN,
    export.InvalidPipelineConfig: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.FamilyError: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.InvalidRows: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.CheckpointError: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.DimPlanViolated: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.SourceNotFound: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.InvalidArtifact: HTTPStatus.UNPROCESSABLE_ENTITY,
    export.AlreadyPublished: HTTPStatus.CONFLICT,
    export.StorageError: HTTPStatus.BAD_GATEWAY,
    InvalidRequest: HTTPStatus.UNPROCESSABLE_ENTITY,
    RequestTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    RequestTooSlow: HTTPStatus.REQUEST_TIMEOUT,
    TooManyBodies: HTTPStatus.SERVICE_UNAVAILABLE,
    TooManyGuesses: HTTPStatus.TOO_MANY_REQUESTS,
    MethodNotAllowed: HTTPStatus.METHOD_NOT_ALLOWED,
    CrossSiteRequest: HTTPStatus.FORBIDDEN,
    NoSuchCall: HTTPStatus.NOT_FOUND,
    Unauthenticated: HTTPStatus.UNAUTHORIZED,
    IssuerUnreachable: HTTPStatus.SERVICE_UNAVAILABLE,
    Forbidden: HTTPStatus.FORBIDDEN,
    job.JobNotFound: HTTPStatus.NOT_FOUND,
    job.JobNotFinished: HTTPStatus.CONFLICT,
    job.JobNotRetryable: HTTPStatus.CONFLICT,
    job.QuotaExceeded: HTTPStatus.TOO_MANY_REQUESTS,
    job.ConfigsTooLarge: HTTPStatus.TOO_MANY_REQUESTS,
    job.ConfigNotFound: HTTPStatus.GONE,
    job.KeyReused: HTTPStatus.UNPROCESSABLE_ENTITY,
    job.KeyInFlight: HTTPStatus.CONFLICT,
    job.NoArtifact: HTTPStatus.NOT_FOUND,
    job.ModelNotFound: HTTPStatus.NOT_FOUND,
    job.BaselineNotUsable: HTTPStatus.UNPROCESSABLE_ENTITY,
    job.TorchUnserved: HTTPStatus.UNPROCESSABLE_ENTITY,
    job.ReleaseNotBlessed: HTTPStatus.CONFLICT,
    job.NoBundle: HTTPStatus.NOT_FOUND,
    job.JobFinished: HTTPStatus.CONFLICT,
    job.IllegalMove: HTTPStatus.CONFLICT,
    job.StoreUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    job.RecordUnreadable: HTTPStatus.GONE,
    job.RecordTooNew: HTTPStatus.SERVICE_UNAVAILABLE,
    hook.WebhookUnverified: HTTPStatus.UNAUTHORIZED,
    hook.InvalidEvent: HTTPStatus.BAD_REQUEST,
    hook.TriggerNotFound: HTTPStatus.NOT_FOUND,
    hook.TriggerUnfilled: HTTPStatus.UNPROCESSABLE_ENTITY,
    hook.CallbackRefused: HTTPStatus.UNPROCESSABLE_ENTITY,
    hook.SubscriptionNotFound: HTTPStatus.NOT_FOUND,
    hook.DeliveryNotFound: HTTPStatus.NOT_FOUND,
    hook.DeliveryBusy: HTTPStatus.CONFLICT,
    hook.DeliveryUnsendable: HTTPStatus.CONFLICT,
}

# The errors that FastAPI answers with by itself, by status.
_BY_STATUS: dict[int, type[ExportError]] = {
    HTTPStatus.BAD_REQUEST: InvalidRequest,
    HTTPStatus.METHOD_NOT_ALLOWED: MethodNotAllowed,
}


def status_of(error: type[ExportError]) -> HTTPStatus:
    return next(STATUS[each] for each in error.__mro__ if each in STATUS)


def problem_responses(*errors: type[ExportError]) -> dict[int | str, dict[str, object]]:
    """Describe in OpenAPI the errors that a route may answer with."""
    codes = {HTTPStatus.UNPROCESSABLE_ENTITY: [InvalidRequest.code]}
    for error in errors:
        codes.setdefault(status_of(error), []).append(error.code)
    return {
        int(status): {
            "description": ", ".join(names),
            "content": {PROBLEM_JSON: {"schema": {"$ref": _SCHEMAS + "Problem"}}},
        }
        for status, names in codes.items()
    }


def keyed_responses(*errors: type[ExportError]) -> dict[int | str, dict[str, object]]:
    """Describe `errors`, and those of every route that asks for a key and reads the job store."""
    return problem_responses(*errors, job.StoreUnavailable, Unauthenticated, Forbidden)


class ProblemResponse(Response):
    """An error as application/problem+json."""

    media_type = PROBLEM_JSON

    def __init__(self, error: ExportError, body: Problem) -> None:
        """Answer with the problem that describes the error."""
        super().__init__(body.model_dump_json(), status_code=body.status)
        self.error = error


# Draws an error as a page, with a status.
DrawError = Callable[[HTTPConnection, ExportError, HTTPStatus], Response]


def problem(
    error: ExportError, status: HTTPStatus | None = None, fields: tuple[FieldProblem, ...] = ()
) -> ProblemResponse:
    """Return the answer for an error, by default with the status of its class."""
    status = status or status_of(type(error))
    body = Problem(
        type=f"urn:slipway:problem:{error.code}",
        title=status.phrase,
        status=status,
        detail=error.message,
        code=error.code,
        hint=error.hint,
        where=error.where,
        errors=fields,
    )
    answer = ProblemResponse(error, body)
    if status in _RETRYABLE or isinstance(error, job.KeyInFlight):
        answer.headers["Retry-After"] = str(RETRY_AFTER_S)
    if status is HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"
    return answer


def for_reader(connection: HTTPConnection, answer: ProblemResponse, draw: DrawError) -> Response:
    """Return a problem as a page if a browser shows it to a person; programs do not ask for HTML."""
    if "text/html" not in connection.headers.get("accept", ""):
        return answer
    page = draw(connection, answer.error, HTTPStatus(answer.status_code))
    for name in _KEPT_ON_PAGES:
        if name in answer.headers:
            page.headers[name] = answer.headers[name]
    return page


def handle_errors(app: FastAPI, draw: DrawError) -> None:
    """Answer all errors of `app` with problems, or with pages; define problems in its OpenAPI document."""
    document = app.openapi
    handlers: tuple[tuple[type[Exception], _Handler], ...] = (
        (ExportError, _export_error),
        (RequestValidationError, _invalid_request),
        (HTTPException, _http_error),
        (Exception, _unexpected_error),
    )
    for kind, handler in handlers:
        app.add_exception_handler(kind, _with_pages(handler, draw))
    app.openapi = lambda: _with_problem_schema(document())  # type: ignore[method-assign] # as FastAPI's docs do


def _with_problem_schema(document: dict[str, Any]) -> dict[str, Any]:
    """Define the schema that `problem_responses` names; FastAPI knows only those of successful answers."""
    schema = Problem.model_json_schema(ref_template=_SCHEMAS + "{model}")
    inner = schema.pop("$defs", {})
    document["components"]["schemas"].update({"Problem": schema, **inner})
    return document


_Handler = Callable[[Request, Exception], Awaitable[ProblemResponse]]


def _with_pages(handler: _Handler, draw: DrawError) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def handle(request: Request, error: Exception) -> Response:
        return for_reader(request, await handler(request, error), draw)

    return handle


# The handlers are `async`: the thread pool, where Starlette would call them otherwise, may be full.
async def _export_error(_request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, ExportError)
    return problem(error)


async def _invalid_request(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)
    if (unread := _unread_body(request, error)) is not None:
        return problem(unread)
    invalid, fields = describe_invalid(error)
    return problem(invalid, fields=fields)


def describe_invalid(error: RequestValidationError) -> tuple[InvalidRequest, tuple[FieldProblem, ...]]:
    """Return the error of a request whose fields are wrong, and its first mistakes."""
    mistakes = error.errors()
    fields = tuple(
        FieldProblem(
            where=fit_to_show(_field(each["loc"]), _LONGEST_FIELD),
            detail=fit_to_show(in_words(each["msg"]), _LONGEST_DETAIL),
        )
        for each in mistakes[:MOST_NAMED]
    )
    if len(mistakes) > MOST_NAMED:
        more = f"{len(mistakes) - MOST_NAMED:,} more mistakes are not listed"
        fields += (FieldProblem(where="", detail=more),)
    first = fields[0]
    invalid = InvalidRequest(
        f"{first.where}: {first.detail}" if first.where else first.detail,
        hint="correct the fields in `errors`; the schema is at /docs",
        where=first.where,
    )
    return invalid, fields


def _unread_body(request: Request, error: RequestValidationError) -> InvalidRequest | None:
    """Return the error of a body that was not read as JSON at all, so that no field of it is wrong."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        why = redact_and_escape(f"{first['ctx']['error']}, at character {first['loc'][-1]}")
        return InvalidRequest(f"the body is no JSON: {why}", hint="send one JSON object")
    if tuple(first["loc"]) == ("body",) and isinstance(error.body, bytes):
        media_type = redact_and_escape(request.headers.get("content-type", "")) or "missing"
        return InvalidRequest(
            f"the body is not read as JSON: its Content-Type is {media_type}",
            hint="send the header `Content-Type: application/json`",
        )
    return None


def _field(location: tuple[int | str, ...]) -> str:
    """Name the field without the part of the request that it is in, which the route makes plain."""
    return ".".join(str(step) for step in location[1:])


async def _http_error(request: Request, error: Exception) -> ProblemResponse:
    """Answer an error that FastAPI itself raises, for lack of a route or on a body that it cannot parse."""
    assert isinstance(error, HTTPException)
    kind = _BY_STATUS.get(error.status_code, NoSuchCall)
    known = kind(f"{request.method} {request.url.path}: {error.detail}")
    # A body that cannot be parsed is 422, like one that is parsed and found wrong.
    status = None if kind is InvalidRequest else HTTPStatus(error.status_code)
    answer = problem(known, status)
    answer.headers.update(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        answer.headers["Allow"] = ", ".join(_allowed_methods(request))
    return answer


def _allowed_methods(request: Request) -> list[str]:
    """Return all methods of the path; each of its routes knows its own method only, none knows of HEAD."""
    routes = request.app.routes
    if documented := request.app.openapi()["paths"].get(request.url.path):  # a path without an id in it
        found = {method.upper() for method in documented}
    else:
        scopes = {method: {**request.scope, "method": method} for method in _METHODS}
        found = {
            method
            for method, scope in scopes.items()
            if any(route.matches(scope)[0] is Match.FULL for route in routes)
        }
    return [method for method in _METHODS if method in found or (method == "HEAD" and "GET" in found)]


async def _unexpected_error(request: Request, error: Exception) -> ProblemResponse:
    log.error("request_failed", exc_info=error, extra={"path": request.url.path})
    failure = Failure.of(error)
    unexpected = ExportError("an unexpected error in Slipway", hint="the service's log has the details")
    unexpected.code = failure.code
    return problem(unexpected)

"""Routes of the dashboard, which show errors as pages, and the forms that pages post."""

from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import parse_qs

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import HTTPConnection

from exporter.errors import ExportError
from service.access.callers import Caller
from service.access.guard import KEY_COOKIE
from service.dashboard.pages import ErrorPage, SignInPage
from service.dashboard.render import answer
from service.errors import InvalidRequest, Unauthenticated, status_of

_MOST_FIELDS = 32  # of a form
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A route that answers errors with a page, and a missing key with the form to sign in."""

    def get_route_handler(self) -> Handler:
        """Return the route's handler, with errors as pages."""
        handle = super().get_route_handler()

        async def handle_with_pages(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                first = error.errors()[0]
                return error_page(request, InvalidRequest(f"{first['loc'][-1]}: {first['msg']}"))
            except ExportError as error:
                return error_page(request, error)

        return handle_with_pages


async def _parse_form(request: Request) -> dict[str, str]:
    body = (await request.body()).decode(errors="replace")
    try:  # a large body would keep the event loop
        fields = await run_in_threadpool(parse_qs, body, max_num_fields=_MOST_FIELDS)
    except ValueError as error:
        raise InvalidRequest(f"the form has more than {_MOST_FIELDS} fields") from error
    return {name: values[0] for name, values in fields.items()}


Form = Annotated[dict[str, str], Depends(_parse_form)]  # the fields of a posted form


def error_page(request: HTTPConnection, error: ExportError, status: HTTPStatus | None = None) -> Response:
    """Answer an error with a page: a missing key with the form to sign in."""
    if isinstance(error, Unauthenticated):
        return _sign_in(request, error)
    status = status or status_of(type(error))
    known = getattr(request.state, "caller", None)  # an error if the key is wrong
    page = ErrorPage(
        reader=known if isinstance(known, Caller) else None,
        status=status.phrase,
        code=error.code,
        message=error.message,
        hint=error.hint,
    )
    return answer(page, status=status)


def _sign_in(request: HTTPConnection, error: Unauthenticated) -> Response:
    is_read = request.scope["method"] == "GET"
    wanted = request.url.path if is_read else "/"
    if is_read and request.url.query:
        wanted = f"{wanted}?{request.url.query}"
    refused = error.message if KEY_COOKIE in request.cookies else ""
    return answer(SignInPage(wanted=wanted, refused=refused), status=status_of(Unauthenticated))

"""A route that reads plain requests itself.

FastAPI takes about as long to read a request, and to solve its dependencies, as the export's checks take.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from exporter.errors import ExportError
from jobs.request import ExportRequest
from service.dependencies import submission_of
from service.submit.submission import Submission

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class DirectRoute(APIRoute):
    """A route for an ExportRequest and a Submission.

    A request that is in order, without an Idempotency-Key, is read here. Any other is read again by FastAPI,
    which also answers its mistakes.
    """

    def get_route_handler(self) -> Handler:
        """Return the route's handler."""
        handle = super().get_route_handler()

        async def handle_plain_requests(request: Request) -> Response:
            found = await _read(request)
            if found is None:
                return await handle(request)
            export, submission = found
            answer: Response = await self.endpoint(export, submission)
            return answer

        return handle_plain_requests


async def _read(request: Request) -> tuple[ExportRequest, Submission] | None:
    headers = request.headers
    if headers.get("content-type") != "application/json" or "idempotency-key" in headers:
        return None
    try:
        submission = await submission_of(request)
        return ExportRequest.model_validate(json.loads(await request.body())), submission
    except (ExportError, ValueError, RecursionError, ClientDisconnect):
        return None

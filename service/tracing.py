"""Spans of the API: one per request, and one for every job that a request leaves to the workers."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from exporter.spec import Target
from jobs.ids import JobId
from jobs.queue import JobQueue
from jobs.request import Priority
from telemetry.tracing import SpanKind, Tracing

_QUIET = ("/static/", "/healthz", "/readyz", "/metrics")  # asked for all the time
_SERVER_ERROR = 500


class RequestSpans:
    """ASGI middleware: a span per request, named for its route, below the caller's if that sends one."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        """Trace the requests to `app`."""
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer within a span."""
        if scope["type"] != "http" or scope["path"].startswith(_QUIET):
            await self._app(scope, receive, send)
            return
        method = str(scope["method"])
        told = {"http.request.method": method, "url.path": str(scope["path"])}
        with self._tracing.span(method, SpanKind.SERVER, parent=_parent(scope), attributes=told) as span:

            async def sending(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.note({"http.response.status_code": message["status"]})
                    if message["status"] >= _SERVER_ERROR:
                        span.fail(f"status {message['status']}")
                await send(message)

            await self._app(scope, receive, sending)
            if (route := getattr(scope.get("route"), "path", None)) is not None:
                span.rename(f"{method} {route}")
                span.note({"http.route": route})


@dataclass(frozen=True)
class TracedQueue:
    """A queue whose messages have a span each."""

    queue: JobQueue
    tracing: Tracing

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL, target: Target = "cpu") -> None:
        told = {"slipway.job": job_id, "slipway.priority": priority, "slipway.target": target}
        with self.tracing.span("enqueue", SpanKind.PRODUCER, attributes=told):
            self.queue.enqueue(job_id, priority, target)

    def find_undelivered(self, target: Target = "cpu") -> frozenset[JobId]:
        return self.queue.find_undelivered(target)

    def count_waiting(self, targets: Sequence[Target]) -> int:
        return self.queue.count_waiting(targets)


def _parent(scope: Scope) -> str | None:
    found = dict(scope["headers"]).get(b"traceparent")
    return found.decode("latin-1") if found else None

"""Spans of the API: one per request, and one for every job that a request puts into the queue."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobs.ids import JobId
from jobs.model import Job
from jobs.queue import AddJob, AddJobAsync, JobQueue
from jobs.request import Priority
from jobs.route import Route
from telemetry.tracing import Span, SpanKind, Tracing

_NOT_TRACED = ("/static/", "/healthz", "/readyz", "/metrics")  # requested all the time
_SERVER_ERROR = 500


class RequestSpans:
    """ASGI middleware that records a span per request, named by its route, as a child of the caller's."""

    def __init__(self, app: ASGIApp, tracing: Tracing) -> None:
        """Trace the requests to `app`."""
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request within a span."""
        if scope["type"] != "http" or scope["path"].startswith(_NOT_TRACED):
            await self._app(scope, receive, send)
            return
        method = str(scope["method"])
        attributes = {"http.request.method": method, "url.path": str(scope["path"])}
        with self._tracing.span(
            method, SpanKind.SERVER, parent=_parent_of(scope), attributes=attributes
        ) as span:

            async def send_and_note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.note({"http.response.status_code": message["status"]})
                    if message["status"] >= _SERVER_ERROR:
                        span.fail(f"status {message['status']}")
                await send(message)

            await self._app(scope, receive, send_and_note)
            if (route := getattr(scope.get("route"), "path", None)) is not None:
                span.rename(f"{method} {route}")
                span.note({"http.route": route})


@dataclass(frozen=True)
class TracedQueue:
    """A job queue that records a span for each message."""

    queue: JobQueue
    tracing: Tracing

    def enqueue_new(self, job: Job, add: AddJob) -> JobId | None:
        with self._span_of(job):
            return self.queue.enqueue_new(job, add)

    async def enqueue_new_async(self, job: Job, add: AddJobAsync) -> JobId | None:
        with self._span_of(job):
            return await self.queue.enqueue_new_async(job, add)

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL, route: Route = "cpu") -> None:
        attributes = {"slipway.job": job_id, "slipway.priority": priority, "slipway.target": route}
        with self.tracing.span("enqueue", SpanKind.PRODUCER, attributes=attributes):
            self.queue.enqueue(job_id, priority, route)

    def find_undelivered(self, route: Route = "cpu") -> frozenset[JobId]:
        return self.queue.find_undelivered(route)

    def count_waiting(self, routes: Sequence[Route]) -> int:
        return self.queue.count_waiting(routes)

    def _span_of(self, job: Job) -> AbstractContextManager[Span]:
        routes = ",".join(job.pending_routes)
        attributes = {"slipway.job": job.id, "slipway.priority": job.priority, "slipway.target": routes}
        return self.tracing.span("enqueue", SpanKind.PRODUCER, attributes=attributes)


def _parent_of(scope: Scope) -> str | None:
    found = dict(scope["headers"]).get(b"traceparent")
    return found.decode("latin-1") if found else None

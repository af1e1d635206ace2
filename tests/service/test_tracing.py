"""The API's spans, as a collector receives them."""

import pytest
from starlette.testclient import TestClient

from jobs.queue import MemoryQueue
from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from service.tracing import TracedQueue
from telemetry.setup import make_tracing
from tests.jobs.factories import make_job
from tests.telemetry.conftest import Collector, collector

__all__ = ["collector"]

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_request_is_a_span_below_its_callers_named_for_its_route(
    backend: Backend, collector: Collector
) -> None:
    app = create_app(ServiceSettings(otlp_endpoint=collector.endpoint), backend)
    with TestClient(app) as client:
        client.get("/healthz")  # asked for all the time, and no span
        assert client.get("/exports/nonsense", headers={"traceparent": CALLER}).status_code == 404
    (span,) = collector.spans()
    assert (span["name"], span["kind"]) == ("GET /exports/{job_id}", "SPAN_KIND_SERVER")
    assert (span["trace"], span["parent"]) == (CALLER[3:35], CALLER[36:52])
    assert span["failed"] is None  # the caller's fault, not ours


def test_a_message_to_the_workers_is_a_span_below_the_request(collector: Collector) -> None:
    tracing, queue, job = make_tracing(collector.endpoint, "api"), MemoryQueue(), make_job()
    with tracing.span("request"):
        TracedQueue(queue, tracing).enqueue(job.id)
    tracing.close()
    assert queue.sent == [job.id]
    assert collector.wait_for("enqueue")["parent"] == collector.wait_for("request")["id"]


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", ""])
def test_an_endpoint_is_a_url(endpoint: str) -> None:
    with pytest.raises(ValueError, match="otlp_endpoint"):
        ServiceSettings(otlp_endpoint=endpoint)

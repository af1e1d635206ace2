"""Spans as a collector receives them."""

import subprocess
import sys

import pytest

from launcher.up import running_stack
from slipway.client import Client, JobState
from telemetry.setup import make_tracing
from telemetry.tracing import SpanKind, trace_id
from tests.service.requests import export_request
from tests.telemetry.conftest import Collector


def test_a_span_in_anothers_block_stands_below_it(collector: Collector) -> None:
    tracing = make_tracing(collector.endpoint, "here")
    with tracing.span("outer", SpanKind.SERVER) as outer, tracing.span("inner"):
        assert tracing.current_traceparent() != outer.traceparent
    tracing.close()
    above, below = collector.wait_for("outer"), collector.wait_for("inner")
    assert (below["trace"], below["parent"]) == (above["trace"], above["id"])
    assert (above["trace"], above["kind"]) == (trace_id(outer.traceparent), "SPAN_KIND_SERVER")


def test_a_span_that_is_over_keeps_its_times_and_its_failure(collector: Collector) -> None:
    tracing = make_tracing(collector.endpoint, "rank", at_once=True)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    tracing.record("trace", 10.0, 12.5, parent=parent, failed="TraceFailed")
    (span,) = collector.spans()  # at once: nothing to wait for
    assert (span["trace"], span["parent"]) == (parent[3:35], parent[36:52])
    assert (span["seconds"], span["failed"], span["service"]) == ("2.5", "TraceFailed", "rank")


def test_a_collector_that_is_away_is_no_error() -> None:
    tracing = make_tracing("http://127.0.0.1:1", "here", at_once=True)
    tracing.record("trace", 0.0, 1.0, parent=None)
    tracing.close()


def test_without_an_endpoint_nothing_is_imported() -> None:
    program = """
import sys, service.app, worker.app, worker.attempt.reports
from telemetry.setup import make_tracing
with make_tracing(None, "here").span("outer") as span:
    assert span.traceparent is None
print(*(name for name in sys.modules if name.startswith(("telemetry.otlp", "opentelemetry.exporter"))))
"""
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


@pytest.mark.slow
def test_a_trace_leads_from_the_request_to_the_stages_of_a_rank(collector: Collector) -> None:
    """The ranks are real, and fail at reading rows, before they trace or compile."""
    environment = {"SLIPWAY_OTLP_ENDPOINT": collector.endpoint}
    rows = collector.file.with_name("none.parquet")
    rows.write_bytes(b"no rows")
    with running_stack(collector.file.parent / "data", environment=environment) as stack:
        client = Client(stack.url)
        request = export_request(towers=["user"], sample_input_uri=str(rows))
        job = client.submit(request)
        assert [each.state for each in client.events(job.id)][-1] is JobState.FAILED
        collector.wait_for("attempt")
    posted = collector.wait_for("POST /exports")
    attempt, rank = collector.wait_for("attempt"), collector.wait_for("rank")
    assert posted["trace"] == job.trace_id
    assert [collector.wait_for(name)["parent"] for name in ("enqueue", "claim")] == [posted["id"]] * 2
    assert (attempt["parent"], rank["parent"]) == (posted["id"], attempt["id"])
    stages = [collector.wait_for(stage) for stage in ("config", "checkpoint", "rows")]
    assert {(stage["parent"], stage["trace"], stage["tower"]) for stage in stages} == {
        (rank["id"], posted["trace"], "user")
    }
    assert [stage["failed"] for stage in stages] == [None, None, "InvalidRows"]

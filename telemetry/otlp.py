"""Spans of OpenTelemetry's SDK, sent as OTLP over HTTP; its own variables (OTEL_…) tune the rest."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.trace import StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from exporter.version import __version__
from telemetry.tracing import NO_ATTRIBUTES, Attributes, Span, SpanKind, Tracing

_TIMEOUT_S = 2.0  # for sending: the longest that a rank waits at the end of a stage
_DELAY_MS = 1000
_KINDS = {
    SpanKind.SERVER: trace.SpanKind.SERVER,
    SpanKind.PRODUCER: trace.SpanKind.PRODUCER,
    SpanKind.CONSUMER: trace.SpanKind.CONSUMER,
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
}
_W3C = TraceContextTextMapPropagator()


class OtlpSpan(Span):
    """A span of OpenTelemetry's SDK."""

    def __init__(self, span: trace.Span) -> None:
        """Wrap `span`, which the caller ends."""
        self._span = span

    @property
    def traceparent(self) -> str | None:
        return _format_traceparent(trace.set_span_in_context(self._span, Context()))

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def note(self, attributes: Attributes) -> None:
        self._span.set_attributes(dict(attributes))

    def fail(self, why: str) -> None:
        self._span.set_status(StatusCode.ERROR, why)


class OtlpTracing(Tracing):
    """Sends the spans of one program to a collector; while that cannot be reached, spans are lost."""

    def __init__(self, endpoint: str, program: str, *, at_once: bool) -> None:
        """Send to `<endpoint>/v1/traces`, in the background or, with `at_once`, as each span ends."""
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=_TIMEOUT_S)
        resource = Resource({"service.name": program, "service.version": __version__})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(
            SimpleSpanProcessor(exporter)
            if at_once
            else BatchSpanProcessor(exporter, schedule_delay_millis=_DELAY_MS)
        )
        self._tracer = self._provider.get_tracer("slipway", __version__)

    @contextmanager
    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        parent: str | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> Iterator[Span]:
        context = _parent_context(parent) if parent else None
        with self._tracer.start_as_current_span(
            name, context, _KINDS[kind], attributes=dict(attributes)
        ) as span:
            yield OtlpSpan(span)

    def record(
        self,
        name: str,
        begun: float,
        ended: float,
        *,
        parent: str | None,
        attributes: Attributes = NO_ATTRIBUTES,
        failed: str | None = None,
    ) -> None:
        context = _parent_context(parent) if parent else None
        span = self._tracer.start_span(name, context, attributes=dict(attributes), start_time=_ns(begun))
        if failed is not None:
            span.set_status(StatusCode.ERROR, failed)
        span.end(_ns(ended))

    def current_traceparent(self) -> str | None:
        return _format_traceparent(None)

    def close(self) -> None:
        self._provider.shutdown()


def _parent_context(parent: str) -> Context:
    return _W3C.extract({"traceparent": parent}, Context())


def _format_traceparent(context: Context | None) -> str | None:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context)
    return carrier.get("traceparent")


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)

"""Traces from a request to the stages it leads to, behind one small interface.

`Tracing` and `Span` record nothing; programs use them where no endpoint is set, and `telemetry.otlp`
overrides them with OpenTelemetry's. They replace the no-op tracer of opentelemetry-api because the ranks of
an attempt and `slipway export` also run where no OpenTelemetry is installed (requirements/exporter.txt).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum

Attributes = Mapping[str, str | int | float]

NO_ATTRIBUTES: Attributes = {}


class SpanKind(StrEnum):
    """The role of a span's program towards the programs around it, as OpenTelemetry names roles."""

    SERVER = "server"  # answers a request
    PRODUCER = "producer"  # sends a message that another program will process
    CONSUMER = "consumer"  # processes such a message
    INTERNAL = "internal"


class Span:
    """One timed piece of work; this base class records nothing."""

    @property
    def traceparent(self) -> str | None:
        """The span's W3C traceparent, which makes other programs' spans its children; None if not traced."""
        return None

    def rename(self, name: str) -> None:
        """Replace the span's name."""

    def note(self, attributes: Attributes) -> None:
        """Add attributes to the span."""

    def fail(self, why: str) -> None:
        """Mark the span as failed."""


class Tracing:
    """The spans of one program; this base class records none."""

    @contextmanager
    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        parent: str | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> Iterator[Span]:
        """Time the block as a span: a child of `parent`, a traceparent, or else of the enclosing span."""
        yield Span()

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
        """Record work that is over as a span; times are Unix seconds, and `failed` is the error, if any."""

    def current_traceparent(self) -> str | None:
        """Return the traceparent of the enclosing span; None if nothing is traced."""
        return None

    def close(self) -> None:
        """Send the spans that have not been sent yet."""


def trace_id(traceparent: str | None) -> str | None:
    """Return the id of a traceparent's trace, as collectors show it."""
    return traceparent.split("-")[1] if traceparent else None

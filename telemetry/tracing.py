"""Traces from a request to the stages it leads to; without an endpoint nothing is imported, nothing done."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import Protocol

Attributes = Mapping[str, str | int | float]

NO_ATTRIBUTES: Attributes = {}


class SpanKind(StrEnum):
    """How a span stands to the ones around it."""

    SERVER = "server"  # answers a request
    PRODUCER = "producer"  # leaves work for others
    CONSUMER = "consumer"  # does what was left
    INTERNAL = "internal"


class Span(Protocol):
    """Something that takes its time."""

    @property
    def traceparent(self) -> str | None:
        """What others need to know to stand below it, in W3C's form."""
        ...

    def rename(self, name: str) -> None: ...

    def note(self, attributes: Attributes) -> None: ...

    def fail(self, why: str) -> None: ...


class Tracing(Protocol):
    """Begins spans; those that are begun in another's block stand below it."""

    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        parent: str | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> AbstractContextManager[Span]:
        """A span as long as the block; below `parent`, another program's, where one is given."""
        ...

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
        """A span that is over; times are Unix seconds, `failed` says why it did."""
        ...

    def current_traceparent(self) -> str | None:
        """The traceparent of the span whose block this is."""
        ...

    def close(self) -> None:
        """Send what has not been sent."""
        ...


class NoSpan:
    """Stands for a span where nothing is traced."""

    @property
    def traceparent(self) -> str | None:
        return None

    def rename(self, name: str) -> None:
        return

    def note(self, attributes: Attributes) -> None:
        return

    def fail(self, why: str) -> None:
        return


class NoTracing:
    """Tracing where no endpoint is set."""

    @contextmanager
    def span(
        self,
        name: str,
        kind: SpanKind = SpanKind.INTERNAL,
        *,
        parent: str | None = None,
        attributes: Attributes = NO_ATTRIBUTES,
    ) -> Iterator[Span]:
        yield _NO_SPAN

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
        return

    def current_traceparent(self) -> str | None:
        return None

    def close(self) -> None:
        return


_NO_SPAN = NoSpan()


def trace_id(traceparent: str | None) -> str | None:
    """The trace a traceparent is of, as collectors show it."""
    return traceparent.split("-")[1] if traceparent else None

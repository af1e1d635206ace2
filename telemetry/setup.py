"""Choose where a program's spans go: to an OTLP endpoint, or nowhere."""

from telemetry.tracing import NoTracing, Tracing


def make_tracing(endpoint: str | None, program: str, *, at_once: bool = False) -> Tracing:
    """Spans of `program`, sent to an OTLP endpoint by a thread; `at_once`, each by whoever ends it."""
    if endpoint is None:
        return NoTracing()
    from telemetry.otlp import OtlpTracing  # heavy, and for those who set an endpoint

    return OtlpTracing(endpoint, program, at_once=at_once)

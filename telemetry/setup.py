"""Choose where a program's spans go: to an OTLP endpoint, or nowhere."""

from telemetry.tracing import Tracing


def make_tracing(endpoint: str | None, program: str, *, at_once: bool = False) -> Tracing:
    """Return the tracing of `program`, which sends spans to an OTLP endpoint, or none where that is None.

    A thread sends them in the background; with `at_once`, each is sent by the thread that ends it.
    """
    if endpoint is None:
        return Tracing()
    from telemetry.otlp import OtlpTracing  # slow to import, and not needed without an endpoint

    return OtlpTracing(endpoint, program, at_once=at_once)

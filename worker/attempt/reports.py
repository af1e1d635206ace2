"""Report the stages of a rank: as lines for its supervisor, as log lines for people, and as spans."""

import sys
from collections.abc import Callable
from typing import TextIO

from structlog.contextvars import bind_contextvars, unbind_contextvars

from exporter.stages import OnStage, Stage, StageEvent
from telemetry.tracing import Tracing
from worker.attempt.logs import format_event

WrapReport = Callable[[OnStage], OnStage]


def make_reporter(events: TextIO, tracing: Tracing, traceparent: str | None) -> OnStage:
    """Return a function that passes events on to the event file, the log and, as stages end, the trace."""
    begun: dict[tuple[str, Stage], float] = {}

    def report(event: StageEvent) -> None:
        events.write(event.model_dump_json() + "\n")
        sys.stderr.write("".join(f"{line}\n" for line in format_event(event)))
        match event.kind:
            case "started":
                begun[event.tower, event.stage] = event.at
                bind_contextvars(stage=str(event.stage), tower=event.tower)
            case "finished" | "failed":
                tracing.record(
                    event.stage,
                    begun.get((event.tower, event.stage), event.at),
                    event.at,
                    parent=traceparent,
                    attributes={"slipway.tower": event.tower, "slipway.stage": event.stage},
                    failed=event.detail if event.kind == "failed" else None,
                )
                if event.kind == "finished":  # messages about a failure still belong to the stage
                    unbind_contextvars("stage")
            case "progress" | "noted":
                pass

    return report

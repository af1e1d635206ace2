"""Read the stage events that the ranks of an attempt append to their event files."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from exporter.stages import StageEvent
from telemetry.logging import logger

log = logger(__name__)

_AT_A_TIME = 16 << 20  # bytes read of one rank's file; the rest waits for the next call
_SHOWN = 200  # characters logged of a line that is not an event


class EventTail:
    """Reads the events that the ranks have written since the previous call."""

    def __init__(self, workspace: Path, *, at_a_time: int = _AT_A_TIME) -> None:
        """Start before the first event; read at most `at_a_time` bytes of each file per call."""
        self._workspace = workspace
        self._at_a_time = at_a_time
        self._offsets: dict[Path, int] = {}
        self._put_back: list[StageEvent] = []

    def read(self) -> list[StageEvent]:
        """Return the new events of all ranks, ordered by time."""
        events, self._put_back = self._put_back, []
        for path in self._workspace.glob("events-*.jsonl"):
            events += self._read(path)
        return sorted(events, key=lambda event: event.at)

    def has_first(self) -> bool:
        """Return whether there are events, of which none has been read."""
        files = self._workspace.glob("events-*.jsonl")
        return not any(self._offsets.values()) and any(path.stat().st_size for path in files)

    def put_back(self, events: list[StageEvent]) -> None:
        """Return these events again at the next `read`, because they could not be saved."""
        self._put_back = events

    def _read(self, path: Path) -> list[StageEvent]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            text = file.read(self._at_a_time)
        complete = text[: text.rfind(b"\n") + 1]  # a line still being written waits for the next call
        if not complete and len(text) == self._at_a_time:
            complete = text  # longer than any event: skip it
        self._offsets[path] = self._offsets.get(path, 0) + len(complete)
        return [event for line in complete.splitlines() if (event := _parse_event(line))]


def log_events(events: Iterable[StageEvent]) -> None:
    """Log each stage that a tower entered or left, and each note."""
    for event in events:
        match event.kind:
            case "started":
                log.info("stage_started", tower=event.tower, stage=event.stage)
            case "finished":
                log.info("stage_finished", tower=event.tower, stage=event.stage, seconds=event.seconds)
            case "failed":
                log.warning("stage_failed", tower=event.tower, stage=event.stage, error=event.detail)
            case "noted":
                log.warning("tower_noted", tower=event.tower, stage=event.stage, note=event.detail)
            case "progress":
                pass


def _parse_event(line: bytes) -> StageEvent | None:
    try:
        return StageEvent.model_validate_json(line)
    except ValidationError as error:
        shown = line[:_SHOWN].decode(errors="replace")
        log.warning("stage_event_unreadable", line=shown, error=error.errors()[0]["msg"])
        return None

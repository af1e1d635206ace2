"""Reading the stage events that the ranks of an attempt append to their files."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from exporter.stages import StageEvent
from telemetry.logging import logger

log = logger(__name__)

_AT_A_TIME = 16 << 20  # bytes of one rank's file; the rest waits for the next look
_SHOWN = 200  # characters of a line that is no event


class EventTail:
    """What the ranks reported since the last look."""

    def __init__(self, workspace: Path, *, at_a_time: int = _AT_A_TIME) -> None:
        """Begin before the first event; no more than `at_a_time` of a file is taken into memory."""
        self._workspace = workspace
        self._at_a_time = at_a_time
        self._offsets: dict[Path, int] = {}
        self._put_back: list[StageEvent] = []

    def read(self) -> list[StageEvent]:
        """The new events of all ranks, in the order of their time."""
        events, self._put_back = self._put_back, []
        for path in self._workspace.glob("events-*.jsonl"):
            events += self._read(path)
        return sorted(events, key=lambda event: event.at)

    def put_back(self, events: list[StageEvent]) -> None:
        """Give these again at the next look: nobody could be told of them."""
        self._put_back = events

    def _read(self, path: Path) -> list[StageEvent]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            text = file.read(self._at_a_time)
        complete = text[: text.rfind(b"\n") + 1]  # a line still being written waits for the next look
        if not complete and len(text) == self._at_a_time:
            complete = text  # no event is so long
        self._offsets[path] = self._offsets.get(path, 0) + len(complete)
        return [event for line in complete.splitlines() if (event := _parse(line))]


def log_events(events: Iterable[StageEvent]) -> None:
    """A line for every stage that a tower entered or left, and for what is worth noting."""
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


def _parse(line: bytes) -> StageEvent | None:
    try:
        return StageEvent.model_validate_json(line)
    except ValidationError as error:
        shown = line[:_SHOWN].decode(errors="replace")
        log.warning("stage_event_unreadable", line=shown, error=error.errors()[0]["msg"])
        return None

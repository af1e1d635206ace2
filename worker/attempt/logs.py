"""Follow an attempt's log and file each line under the tower and stage that it belongs to.

With several ranks, every line begins with its rank, `[rank0]: `. A rank announces the tower and stage that it
enters with a line of its own (see `format_stage_mark`); each later line of that rank belongs there. Lines of
a stand-in program have no rank and share one place.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from exporter.redaction import redact_and_escape
from exporter.spec import TowerName
from exporter.stages import Stage, StageEvent
from jobs.diagnostics.logs import MAX_LINE_LENGTH, JobLogs, LogPart, Place
from jobs.ids import JobId
from telemetry.logging import logger

log = logger(__name__)

_AT_A_TIME = 16 << 20  # bytes read per call; of more only the latest, as only the latest lines are kept
TIME_FORMAT = "%H:%M:%S"  # before each line
_RANK = re.compile(r"^\[[\w-]*?(\d+)\]: ?")
_MARK = re.compile(r"^slipway-stage (\w+)(?:\.\d+)? (\w+)$")  # "user.1": rank 1 helps with that tower


def _now() -> datetime:
    return datetime.now(UTC)


def format_stage_mark(tower: str, stage: Stage) -> str:
    """Return the line by which a rank announces the tower and stage of all lines that follow it."""
    return f"slipway-stage {tower} {stage}"


def format_event(event: StageEvent) -> list[str]:
    """Return the lines that a rank writes into its log for an event."""
    match event.kind:
        case "started":
            return [format_stage_mark(event.tower, event.stage), f"{event.stage} of {event.tower}"]
        case "progress":
            return [event.detail if event.fraction is None else f"{event.fraction:.0%} {event.detail}"]
        case "noted":
            return [event.detail]
        case "finished":
            return [f"done in {event.seconds or 0.0:.1f} s"]
        case "failed":
            return [f"failed after {event.seconds or 0.0:.1f} s"]


class LogTail:
    """Moves new lines of an attempt's log to the store that callers read them from."""

    def __init__(
        self,
        log: Path,
        logs: JobLogs,
        job_id: JobId,
        secrets: Sequence[str] = (),
        *,
        at_a_time: int = _AT_A_TIME,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        """Start before the first line of `log`; remove `secrets` from every line, and put its time before it.

        The time, in UTC, is that of the call that reads the line: fractions of a second after it was written.
        """
        self._clock = clock
        self._secrets = secrets
        self._at_a_time = at_a_time
        self._log = log
        self._logs = logs
        self._job_id = job_id
        self._offset = 0
        self._places: dict[str, Place] = {}

    def forward(self) -> None:
        """Store the complete lines written since the last call; if the store is away, try again next time.

        At most `at_a_time` bytes are read into memory, however much an attempt writes.
        """
        if not self._log.exists():
            return
        with self._log.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._offset = max(self._offset, size - self._at_a_time)
            file.seek(self._offset)
            text = file.read(self._at_a_time)
        complete = text[: text.rfind(b"\n") + 1]
        if not complete and len(text) == self._at_a_time:
            complete = text  # one endless line
        parts = self._split_into_parts(complete.decode(errors="replace").splitlines())
        if parts:
            self._logs.append(self._job_id, parts)
        for part in parts:
            for line in part.lines:
                log.debug("rank_line", tower=part.tower, stage=part.stage, line=line)
        self._offset += len(complete)

    def _redact(self, line: str) -> str:
        return redact_and_escape(line[:MAX_LINE_LENGTH], self._secrets)

    def _split_into_parts(self, lines: Iterable[str]) -> list[LogPart]:
        places, time = dict(self._places), self._clock().strftime(TIME_FORMAT)
        found: dict[Place, list[str]] = {}
        for line in lines:
            rank = _RANK.match(line)
            rank_number, text = (rank[1], line[rank.end() :]) if rank else ("", line)
            if place := _parse_stage_mark(text):
                places[rank_number] = place
            else:
                kept = found.setdefault(places.get(rank_number, (None, None)), [])
                kept.append(f"{time} {self._redact(text)}")
        self._places = places
        return [
            LogPart(tower=tower, stage=stage, lines=tuple(each)) for (tower, stage), each in found.items()
        ]


def _parse_stage_mark(line: str) -> Place | None:
    if (found := _MARK.match(line)) is None:
        return None
    try:
        return TowerName(found[1]), Stage(found[2])
    except ValueError:  # another program's line that happens to look like a mark
        return None

"""Follow an attempt's log and file each line under the tower and stage that it belongs to.

With several ranks, every line begins with its rank, `[rank0]: `. A rank announces the tower and stage that it
enters with a line of its own (see `format_stage_mark`); each later line of that rank belongs there. Lines of
a stand-in program have no rank and share one place.
"""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from exporter.redaction import shown
from exporter.spec import TowerName
from exporter.stages import Stage, StageEvent
from jobs.diagnostics.logs import MAX_LINE_LENGTH, JobLogs, LogPart, Place
from jobs.ids import JobId
from telemetry.logging import logger

log = logger(__name__)

_AT_A_TIME = 16 << 20  # bytes; of more than that the latest are read, as only the latest lines are kept
_RANK = re.compile(r"^\[[\w-]*?(\d+)\]: ?")
_MARK = re.compile(r"^slipway-stage (\w+)(?:\.\d+)? (\w+)$")  # "user.1": rank 1 helps with that tower


def format_stage_mark(tower: str, stage: Stage) -> str:
    """The line by which a rank says that what it writes next is of this tower and stage."""
    return f"slipway-stage {tower} {stage}"


def format_event(event: StageEvent) -> list[str]:
    """What a rank writes of an event into its log: first of all where it is."""
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
    """Moves new lines of an attempt's log to where callers can read them."""

    def __init__(
        self,
        log: Path,
        logs: JobLogs,
        job_id: JobId,
        secrets: Sequence[str] = (),
        *,
        at_a_time: int = _AT_A_TIME,
    ) -> None:
        """Begin before the first line of `log`; `secrets` are left out wherever a line holds them."""
        self._secrets = secrets
        self._at_a_time = at_a_time
        self._log = log
        self._logs = logs
        self._job_id = job_id
        self._offset = 0
        self._places: dict[str, Place] = {}

    def forward(self) -> None:
        """Pass on the lines that are complete; if the store is away, they are tried again.

        What an attempt writes, it may write in any amount: no more than `at_a_time` is taken into memory.
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
            complete = text  # a line without an end
        parts = self._split_into_parts(complete.decode(errors="replace").splitlines())
        if parts:
            self._logs.append(self._job_id, parts)
        for part in parts:
            for line in part.lines:
                log.debug("rank_line", tower=part.tower, stage=part.stage, line=line)
        self._offset += len(complete)

    def _redact(self, line: str) -> str:
        return shown(line[:MAX_LINE_LENGTH], self._secrets)

    def _split_into_parts(self, lines: Iterable[str]) -> list[LogPart]:
        places = dict(self._places)
        found: dict[Place, list[str]] = {}
        for line in lines:
            rank = _RANK.match(line)
            who, said = (rank[1], line[rank.end() :]) if rank else ("", line)
            if place := _parse_stage_mark(said):
                places[who] = place
            else:
                found.setdefault(places.get(who, (None, None)), []).append(self._redact(said))
        self._places = places
        return [
            LogPart(tower=tower, stage=stage, lines=tuple(each)) for (tower, stage), each in found.items()
        ]


def _parse_stage_mark(line: str) -> Place | None:
    if (found := _MARK.match(line)) is None:
        return None
    try:
        return TowerName(found[1]), Stage(found[2])
    except ValueError:  # somebody else's line, by a strange chance
        return None

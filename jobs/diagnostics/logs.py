"""Job logs: the latest lines that the ranks of a job wrote, by tower and stage."""

from collections.abc import Sequence
from typing import Protocol

from exporter.spec import Frozen, TowerName
from exporter.stages import Stage
from jobs.ids import JobId

MAX_LINES = 1000  # kept per tower and stage
MAX_LINE_LENGTH = 2000  # characters


class LogPart(Frozen):
    """Lines of one tower in one stage; without both, the lines before the first stage."""

    tower: TowerName | None = None
    stage: Stage | None = None
    lines: tuple[str, ...]


class JobLogs(Protocol):
    """Stores the latest lines of every job, by tower and stage."""

    def append(self, job_id: JobId, parts: Sequence[LogPart]) -> None: ...

    def read(
        self, job_id: JobId, tower: TowerName | None = None, stage: Stage | None = None
    ) -> tuple[LogPart, ...]:
        """Return the parts that have lines, ordered by tower and stage; optionally of one tower or stage."""
        ...


Place = tuple[TowerName | None, Stage | None]


def parts_to_read(tower: TowerName | None, stage: Stage | None) -> list[Place]:
    """Return the parts that may exist, for one tower or stage or for all."""
    before: list[Place] = [] if tower or stage else [(None, None)]
    towers = [tower] if tower else list(TowerName)
    stages = [stage] if stage else list(Stage)
    return [*before, *((each, step) for each in towers for step in stages)]


class MemoryLogs:
    """Lines in a dict, for tests."""

    def __init__(self) -> None:
        """Start without lines."""
        self._lines: dict[tuple[JobId, TowerName | None, Stage | None], list[str]] = {}

    def append(self, job_id: JobId, parts: Sequence[LogPart]) -> None:
        for part in parts:
            kept = self._lines.setdefault((job_id, part.tower, part.stage), [])
            kept += part.lines
            del kept[:-MAX_LINES]

    def read(
        self, job_id: JobId, tower: TowerName | None = None, stage: Stage | None = None
    ) -> tuple[LogPart, ...]:
        found = [
            LogPart(tower=each, stage=step, lines=tuple(self._lines.get((job_id, each, step), ())))
            for each, step in parts_to_read(tower, stage)
        ]
        return tuple(part for part in found if part.lines)

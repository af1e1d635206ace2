"""The texts of a job, to read, to search and to download: its log and its pipeline config."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal
from urllib.parse import urlencode

from exporter.redaction import redact_and_escape
from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import JobLogs, LogPart
from jobs.model import Job
from service.dashboard.render import Page

START: Literal["start"] = "start"  # in the place of a stage: the lines before the first one

_NONE: Mapping[Stage, float] = {}
_MOST_LINES = 5000  # of a config that are shown
_LONGEST_LINE = 2000  # characters

StageOrStart = Stage | Literal["start"]


@dataclass(frozen=True, kw_only=True)
class LogChoice:
    """The part of a log that is shown: of a tower or stage or of all, and the words that lines must hold."""

    tower: TowerName | None = None
    stage: StageOrStart | None = None
    words: str = ""

    @property
    def is_narrow(self) -> bool:
        return bool(self.tower or self.stage or self.words)

    @property
    def name(self) -> str:
        """The chosen part in words; empty for the whole log."""
        tower = f"{self.tower} tower" if self.tower else ""
        return ", ".join(filter(None, [tower, "start-up" if self.stage == START else self.stage]))

    def address(self, path: str, **further: str) -> str:
        """Return a path with this choice as its query."""
        given = {"tower": self.tower, "stage": self.stage, "q": self.words, **further}
        query = urlencode({name: value for name, value in given.items() if value})
        return f"{path}?{query}" if query else path


@dataclass(frozen=True, kw_only=True)
class ShownPart:
    """One part of a log: the lines that hold the words, and how many there are of all."""

    part: LogPart
    lines: tuple[str, ...]
    seconds: float | None  # that its stage took, once it is done

    @property
    def name(self) -> str:
        tower = f"{self.part.tower} tower" if self.part.tower else "all towers"
        return f"{tower}, {self.part.stage}" if self.part.stage else tower

    @property
    def id(self) -> str:
        return f"log-{self.part.tower or 'all'}-{self.part.stage or START}"

    @property
    def count(self) -> str:
        """The number of its lines, in words."""
        total = len(self.part.lines)
        lines = f"{total:,} line{'' if total == 1 else 's'}"
        return lines if len(self.lines) == total else f"{len(self.lines):,} of {lines}"


def read_log(logs: JobLogs, job: Job, choice: LogChoice) -> tuple[ShownPart, ...]:
    """Return the chosen parts of a job's log, without those in which no line holds the words."""
    return tuple(part for part in _read_parts(logs, job, choice) if part.lines)


def _read_parts(logs: JobLogs, job: Job, choice: LogChoice) -> Iterator[ShownPart]:
    words = choice.words.casefold().split()
    if choice.stage == START:
        found = tuple(part for part in logs.read(job.id) if part.stage is None)
    else:
        found = logs.read(job.id, choice.tower, choice.stage)
    seconds = {tower.name: tower.stage_seconds for tower in job.towers}
    for part in found:
        lines = part.lines
        if words:
            lines = tuple(line for line in lines if all(word in line.casefold() for word in words))
        took = seconds.get(part.tower, _NONE).get(part.stage) if part.tower and part.stage else None
        yield ShownPart(part=part, lines=lines, seconds=took)


def format_log(parts: tuple[ShownPart, ...]) -> str:
    """Return the parts as one text, each under a line that names it."""
    lines = (line for each in parts for line in (f"== {each.name}", *each.lines))
    return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, kw_only=True)
class LogPage(Page):
    """The log of a job: the latest lines that its ranks wrote."""

    template: ClassVar[str] = "log.html"
    every: ClassVar[int] = 0

    job: Job
    choice: LogChoice
    parts: tuple[ShownPart, ...]

    @property
    def path(self) -> str:
        return f"/jobs/{self.job.id}/log"

    @property
    def towers(self) -> tuple[TowerName, ...]:
        """The towers to choose from."""
        return tuple(dict.fromkeys(tower.name for tower in self.job.towers))

    @property
    def stages(self) -> tuple[StageOrStart, ...]:
        """The stages to choose from: those that some tower goes through."""
        known = {stage for tower in self.job.towers for stage in tower.stages}
        return START, *(stage for stage in Stage if stage in known)

    @property
    def download(self) -> str:
        return self.choice.address(f"{self.path}/download")

    @property
    def follow(self) -> str:
        return self.choice.address(self.path)

    @property
    def pause(self) -> str:
        return self.choice.address(self.path, follow="no")


@dataclass(frozen=True, kw_only=True)
class FollowedLogPage(LogPage):
    """The log of a job while it runs: new lines appear by themselves."""

    every: ClassVar[int] = 2


@dataclass(frozen=True, kw_only=True)
class ConfigPage(Page):
    """The pipeline config of a job by lines, each of which can be linked to."""

    template: ClassVar[str] = "config.html"
    every: ClassVar[int] = 0

    job: Job
    text: str  # fit to be shown

    @property
    def lines(self) -> tuple[str, ...]:
        """The first lines, each cut if it is very long."""
        return tuple(line[:_LONGEST_LINE] for line in self._all[:_MOST_LINES])

    @property
    def total(self) -> int:
        return len(self._all)

    @property
    def is_cut(self) -> bool:
        return self.total > _MOST_LINES or any(len(line) > _LONGEST_LINE for line in self._all)

    @cached_property
    def _all(self) -> list[str]:
        return self.text.split("\n")


def show_config(text: str) -> str:
    """Return the text of a config without what looks like a secret, and without deceptive characters."""
    return redact_and_escape(text).rstrip("\n")

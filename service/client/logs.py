"""Reading a job's log: once, or again and again until the job has ended."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from exporter.redaction import escape_deceptive
from exporter.spec import TowerName
from exporter.stages import Stage
from service.client.watch import ask_patiently
from slipway.rest.answers import JobLog, LogPart
from slipway.rest.calls import POLL_S
from slipway.rest.json_values import to_text
from slipway.rest.synchronous import Client

_WHOLE_JOB = "job"  # in the place of a tower's name


@dataclass(frozen=True)
class LogReader:
    """Reads one job's log, of one tower or stage or of all."""

    client: Client
    job_id: str
    tower: TowerName | None = None
    stage: Stage | None = None

    def read(self) -> JobLog:
        """Return the lines that the service has now."""
        return self.client.log(self.job_id, self.tower, self.stage)

    def follow(self) -> Iterator[LogPart]:
        """Yield new lines as they are written, and the last of them after the job has ended."""
        printed: dict[tuple[TowerName | None, Stage | None], tuple[str, ...]] = {}
        job = self.client.get(self.job_id)
        while True:
            for part in ask_patiently(self.read).parts:
                place = part.tower, part.stage
                if lines := new_lines(printed.get(place, ()), part.lines):
                    yield replace(part, lines=lines)
                printed[place] = part.lines
            if job.state.is_final:
                return
            time.sleep(POLL_S)
            job = ask_patiently(partial(self.client.get_if_changed, job))


def new_lines(before: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of `now` that come after those of `before`.

    The service keeps the latest lines only: lines that `before` begins with may be gone from `now`.
    """
    dropped = next(count for count in range(len(before) + 1) if now[: len(before) - count] == before[count:])
    return now[len(before) - dropped :]


def print_part(part: LogPart) -> None:
    """Print each line after its tower and stage, with control characters written out by number."""
    tower, stage = part.tower or _WHOLE_JOB, part.stage or ""
    for line in part.lines:
        sys.stdout.write(f"{tower:<5} {stage:<10} {escape_deceptive(line)}\n")
    sys.stdout.flush()


def print_part_as_json(part: LogPart) -> None:
    """Print the tower, the stage and the lines as one line of JSON."""
    sys.stdout.write(f"{to_text(part)}\n")
    sys.stdout.flush()

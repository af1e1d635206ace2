"""Following a job: a live line per tower on a terminal, a plain line per change elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TextIO, TypeVar

from rich.console import Console
from rich.live import Live
from rich.table import Table

from exporter.errors import ExportError
from exporter.outcome import Failure
from jobs.model import TowerProgress, TowerState
from service.client.rest import SlipwayClient
from service.schemas import JobView

Show = Callable[[JobView], None]
Answer = TypeVar("Answer")

POLL_S = 0.5
_PATIENCE_S = 60.0  # with a service that does not answer
_BAR = 20


def watch(client: SlipwayClient, job_id: str, show: Show) -> JobView:
    """Show the job at every change until it has ended."""
    job = client.get(job_id)
    show(job)
    while not job.state.is_final:
        time.sleep(POLL_S)
        latest = ask_patiently(partial(client.get_if_changed, job))
        if latest is not job:
            job = latest
            show(job)
    return job


def ask_patiently(ask: Callable[[], Answer]) -> Answer:
    """Call `ask` until the service answers, for a minute at most."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return ask()
        except ExportError as error:
            if not error.retryable or time.monotonic() > give_up_at:
                raise
        time.sleep(POLL_S)


@contextmanager
def display(stream: TextIO) -> Iterator[Show]:
    """How to show a job on `stream`: rewritten in place on a terminal, else line after line."""
    if not stream.isatty():
        lines = PlainLines(stream)
        yield lines.show
        return
    latest: list[JobView] = []
    with Live(
        console=Console(file=stream),
        get_renderable=lambda: live_table(latest[-1]) if latest else Table.grid(),
        refresh_per_second=4,
    ):
        yield latest.append


def show_end(job: JobView) -> None:
    """Print what was published, and to standard error what was not and why."""
    if job.failure is not None:
        _print_failure("job", job.failure)
    for tower in job.towers:
        if tower.failure is not None and tower.failure != job.failure:
            _print_failure(tower.label, tower.failure)
        elif tower.package_uri is not None:
            sys.stdout.write(f"{tower.label:<5} {tower.package_uri}  sha256:{tower.digest}\n")
    for uri in job.manifest_uris.values() or filter(None, (job.manifest_uri,)):
        sys.stdout.write(f"manifest {uri}\n")


def _print_failure(who: str, failure: Failure) -> None:
    hint = f" ({failure.hint})" if failure.hint else ""
    sys.stderr.write(f"{who}: [{failure.code}] {failure.message}{hint}\n")
    if failure.bundle_url:
        sys.stderr.write(f"{who}: what it takes to find out why: {failure.bundle_url}\n")


def live_table(job: JobView) -> Table:
    """A line for the job and one per tower: stage, progress, elapsed."""
    table = Table.grid(padding=(0, 2))
    table.add_row(job.id, f"[bold]{job.state}[/bold]", *_attempt(job))
    for tower in job.towers:
        place, seconds = _place(tower), _elapsed(tower)
        table.add_row(f"  {tower.label}", place, _bar(tower), f"{seconds:6.1f} s", tower.detail)
    return table


class PlainLines:
    """Prints a line when the job's state or a tower's stage is another than before."""

    def __init__(self, stream: TextIO) -> None:
        """Print to `stream`."""
        self._stream = stream
        self._said: dict[str, str] = {}

    def show(self, job: JobView) -> None:
        self._say("job", f"{job.state}{''.join(f' ({note})' for note in _attempt(job))}")
        for tower in job.towers:
            if tower.state is not TowerState.WAITING:
                self._say(tower.label, _place(tower), f"  {_elapsed(tower):.1f} s")

    def _say(self, who: str, what: str, also: str = "") -> None:
        if self._said.get(who) != what:
            self._said[who] = what
            self._stream.write(f"{who:<5} {what}{also}\n")
            self._stream.flush()


def _attempt(job: JobView) -> list[str]:
    if job.cancel_requested and not job.state.is_final:
        return ["stopping"]
    waiting = [f"no worker alive serves {target}" for target in job.unserved]
    return ([f"attempt {job.attempt}"] if job.attempt > 1 else []) + waiting


def _place(tower: TowerProgress) -> str:
    if tower.failure is not None:
        return f"failed: {tower.failure.code}"
    if tower.state is TowerState.RUNNING and tower.stage is not None:
        return f"{tower.stage} ({tower.stages.index(tower.stage) + 1}/{len(tower.stages)})"
    return str(tower.state)


def _bar(tower: TowerProgress) -> str:
    if tower.state is TowerState.SUCCEEDED:
        done = 1.0
    elif tower.stage is None:
        done = 0.0
    else:
        done = (tower.stages.index(tower.stage) + (tower.fraction or 0.0)) / len(tower.stages)
    filled = round(done * _BAR)
    return "█" * filled + "░" * (_BAR - filled)


def _elapsed(tower: TowerProgress) -> float:
    """Seconds in all stages so far."""
    finished = sum(tower.stage_seconds.values())
    if tower.state is not TowerState.RUNNING or tower.stage_started_at is None:
        return finished
    open_stage = tower.stage is not None and tower.stage not in tower.stage_seconds
    so_far = (datetime.now(UTC) - tower.stage_started_at).total_seconds()
    return finished + (max(0.0, so_far) if open_stage else 0.0)

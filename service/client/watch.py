"""Following a job: with a live line per tower on a terminal, with a plain line per change elsewhere."""

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

from jobs.verdicts import ReleaseVerdict, describe_objections
from slipway.rest.answers import Failure, JobView, TowerProgress
from slipway.rest.calls import POLL_S, UNREACHABLE_S
from slipway.rest.errors import SlipwayError
from slipway.rest.json_values import JsonObject, to_text
from slipway.rest.names import JobState, TowerState
from slipway.rest.synchronous import Client

Show = Callable[[JobView], None]
Answer = TypeVar("Answer")

# The exit code for the final state of a job; 2 means a wrong command line.
EXIT_CODES = {
    JobState.SUCCEEDED: 0,
    JobState.FAILED: 1,
    JobState.CANCELLED: 1,
    JobState.PARTIALLY_SUCCEEDED: 3,
}
NOT_BLESSED = 4  # published, and the release gate objects to it or could not judge it

_BAR = 20  # characters


def watch(client: Client, job_id: str, show: Show) -> JobView:
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
    give_up_at = time.monotonic() + UNREACHABLE_S
    while True:
        try:
            return ask()
        except SlipwayError as error:
            if not error.retryable or time.monotonic() > give_up_at:
                raise
        time.sleep(POLL_S)


@contextmanager
def display(stream: TextIO) -> Iterator[Show]:
    """Give a function that shows a job on `stream`: rewritten in place on a terminal, else line by line."""
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
    """Print the published packages, and on standard error the failures."""
    if job.failure is not None:
        _print_failure("job", job.failure)
    for tower in job.towers:
        if tower.failure is not None and tower.failure != job.failure:
            _print_failure(tower.label, tower.failure)
        elif tower.package_uri is not None:
            sys.stdout.write(f"{tower.label:<5} {tower.package_uri}  sha256:{tower.digest}\n")
    for uri in job.manifest_uris.values() or filter(None, (job.manifest_uri,)):
        sys.stdout.write(f"manifest {uri}\n")
    for verdict in job.verdicts:
        sys.stdout.write(f"{_verdict_text(verdict)}\n")


def show_as_json(job: JobView) -> None:
    """Print the job as one line of JSON."""
    sys.stdout.write(f"{to_text(job)}\n")


def exit_code(job: JobView) -> int:
    """Return the exit code for a job that has ended, so that scripts do not serve what is not blessed."""
    if job.state is JobState.SUCCEEDED and job.blessed is False:
        return NOT_BLESSED
    return EXIT_CODES[job.state]


def _verdict_text(answer: JsonObject) -> str:
    verdict = ReleaseVerdict.model_validate_json(to_text(answer))
    of = f" for {verdict.target}" if verdict.target else ""
    against = (
        f"compared with job {verdict.baseline}" if verdict.baseline else "compared with no other release"
    )
    objections = describe_objections([verdict])
    return f"release{of} {'blessed' if verdict.blessed else f'NOT BLESSED: {objections}'} ({against})"


def _print_failure(who: str, failure: Failure) -> None:
    hint = f" ({failure.hint})" if failure.hint else ""
    sys.stderr.write(f"{who}: [{failure.code}] {failure.message}{hint}\n")
    if failure.bundle_url:
        sys.stderr.write(f"{who}: diagnostics: {failure.bundle_url}\n")


def live_table(job: JobView) -> Table:
    """Return a line for the job and one per tower: stage, progress, elapsed time."""
    table = Table.grid(padding=(0, 2))
    table.add_row(job.id, f"[bold]{job.state}[/bold]", *_notes(job))
    for tower in job.towers:
        stage, seconds = _stage_text(tower), _elapsed_s(tower)
        table.add_row(f"  {tower.label}", stage, _bar(tower), f"{seconds:6.1f} s", tower.detail)
    return table


class PlainLines:
    """Prints a line whenever the job's state or a tower's stage has changed."""

    def __init__(self, stream: TextIO) -> None:
        """Print to `stream`."""
        self._stream = stream
        self._printed: dict[str, str] = {}

    def show(self, job: JobView) -> None:
        self._print_change("job", f"{job.state}{''.join(f' ({note})' for note in _notes(job))}")
        for tower in job.towers:
            if tower.state is not TowerState.WAITING:
                self._print_change(tower.label, _stage_text(tower), f"  {_elapsed_s(tower):.1f} s")

    def _print_change(self, who: str, state: str, time_text: str = "") -> None:
        if self._printed.get(who) != state:
            self._printed[who] = state
            self._stream.write(f"{who:<5} {state}{time_text}\n")
            self._stream.flush()


def _notes(job: JobView) -> list[str]:
    if job.cancel_requested and not job.state.is_final:
        return ["stopping"]
    torch = f" with torch {job.spec.torch}" if job.spec.torch else ""
    waiting = [f"no worker alive serves {target}{torch}" for target in job.unserved]
    return ([f"attempt {job.attempt}"] if job.attempt > 1 else []) + waiting


def _stage_text(tower: TowerProgress) -> str:
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


def _elapsed_s(tower: TowerProgress) -> float:
    """Return the seconds spent in all stages so far."""
    finished = sum(tower.stage_seconds.values())
    if tower.state is not TowerState.RUNNING or tower.stage_started_at is None:
        return finished
    open_stage = tower.stage is not None and tower.stage not in tower.stage_seconds
    so_far = (datetime.now(UTC) - tower.stage_started_at).total_seconds()
    return finished + (max(0.0, so_far) if open_stage else 0.0)

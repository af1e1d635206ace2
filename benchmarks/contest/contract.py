"""The contract with programs that are compared: one command, called with `export` or `latency`.

benchmarks/README.md describes the arguments. Where a program fails, hangs or prints something else, the error
is one line that names the command and what it printed.
"""

import os
import resource
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from processes.guarded_process import GuardedProcess
from processes.log_end import read_log_end

EXPORT, LATENCY = "export", "latency"
_GRACE = timedelta(seconds=5)
_MOST_CHARACTERS = 300  # of what a failed program printed
_AGREE = 0.01  # how far the means of an output's magnitudes may be apart: quantised tables move them by less


class ContenderFailed(Exception):
    """A program did not do its part; the message is one line."""


@dataclass(frozen=True, kw_only=True)
class ExportOrder:
    """One export, and the folder of everything that the program may keep for its next one."""

    config: Path
    checkpoint: Path
    rows: Path
    items: Path | None
    output: Path
    caches: Path

    def arguments(self) -> tuple[str, ...]:
        paths = {
            "--config": self.config,
            "--checkpoint": self.checkpoint,
            "--rows": self.rows,
            "--items": self.items,
            "--output": self.output,
            "--caches": self.caches,
        }
        return tuple(text for name, path in paths.items() if path for text in (name, str(path)))

    def environment(self) -> Mapping[str, str]:
        """Return variables that keep what torch caches, its compiled headers in TMPDIR included."""
        return {
            "TORCHINDUCTOR_CACHE_DIR": str(self.caches / "compiler"),
            "XDG_CACHE_HOME": str(self.caches / "home"),
            "TMPDIR": str(self.temporary),
        }

    @property
    def temporary(self) -> Path:
        return self.caches / "tmp"


@dataclass(frozen=True, kw_only=True)
class LatencyOrder:
    """Calls of one tower of an export's output on files of batches, `<size>-<number>.safetensors`."""

    output: Path
    tower: str
    batches: Path
    sizes: tuple[int, ...]
    seconds: float  # of calls for each size

    def arguments(self) -> tuple[str, ...]:
        output, batches = str(self.output), str(self.batches)
        seconds = str(self.seconds)
        return ("--output", output, "--tower", self.tower, "--batches", batches, "--seconds", seconds)


class BatchTimes(BaseModel):
    """A line that a program prints for each size of batch."""

    batch: int
    p50_ms: Annotated[FiniteFloat, Field(gt=0)]
    outputs: Annotated[Mapping[str, FiniteFloat], Field(min_length=1)]  # mean magnitude, of the first file


@dataclass(frozen=True)
class Taken:
    """Seconds of a command from its start to its end, and those of the processors in all its processes."""

    wall: float
    work: float


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A program that is compared, run within a time limit; its temporary files go below `scratch`."""

    name: str
    command: tuple[str, ...]
    limit: timedelta
    scratch: Path
    installation: tuple[str, ...] = ()  # a command that makes what an installation has made before any export

    def install(self, order: ExportOrder) -> None:
        """Make what an installation has made ahead, among the caches of an order."""
        if self.installation:
            order.temporary.mkdir(parents=True, exist_ok=True)
            self._run((), 1, order.environment(), command=self.installation)

    def export(self, order: ExportOrder, *, cores: int) -> Taken:
        """Export once on some cores, and return how long it took."""
        order.temporary.mkdir(parents=True, exist_ok=True)
        taken, _ = self._run((EXPORT, *order.arguments()), cores, order.environment())
        if not order.output.is_dir() or not any(order.output.iterdir()):
            raise self._failure(EXPORT, "ended well, but left nothing in its output")
        return taken

    def time_batches(self, order: LatencyOrder, *, threads: int) -> Mapping[int, BatchTimes]:
        """Time calls with a number of threads on as many cores, for each size of batch."""
        _, printed = self._run((LATENCY, *order.arguments()), threads, {"TMPDIR": str(self.scratch)})
        lines = [line for line in printed.splitlines() if line.startswith("{")]
        try:
            times = {each.batch: each for each in map(BatchTimes.model_validate_json, lines)}
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where = ".".join(map(str, first["loc"])) or "line"
            raise self._failure(LATENCY, f"gave no such line: {where}: {first['msg']}", printed) from None
        if missing := set(order.sizes) - times.keys():
            sizes = ", ".join(map(str, sorted(missing)))
            raise self._failure(LATENCY, f"gave no line for batches of {sizes}", printed)
        return times

    def _run(
        self,
        words: tuple[str, ...],
        cores: int,
        environment: Mapping[str, str],
        *,
        command: tuple[str, ...] | None = None,
    ) -> tuple[Taken, str]:
        """Run the command with these words to its end, and return its seconds and what it printed."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        log = self.scratch / "log"
        log.unlink(missing_ok=True)
        variables = {"OMP_NUM_THREADS": str(cores), "OMP_WAIT_POLICY": "passive", **environment}
        with _only_cores(cores):
            worked, begun = _child_seconds(), time.monotonic()
            process = GuardedProcess.start(
                [*(command or self.command), *words], log=log, grace=_GRACE, environment=variables
            )
            try:
                status = process.wait(self.limit)
                wall = time.monotonic() - begun
            finally:
                process.stop()
        printed, verb = read_log_end(log), words[0] if words else "installation"
        if status is None:
            limit = self.limit.total_seconds()
            raise self._failure(verb, f"did not end within {limit:.0f} seconds", printed)
        if status:
            raise self._failure(verb, f"ended with status {status}", printed)
        return Taken(wall=wall, work=_child_seconds() - worked), printed

    def _failure(self, verb: str, what: str, printed: str = "") -> ContenderFailed:
        """Return an error of one line, with the end of what the program printed."""
        end = " ".join(printed.split())[-_MOST_CHARACTERS:]
        return ContenderFailed(
            f"{self.name}: `{shlex.join([*self.command, verb])}` {what}; "
            + (f"printed at its end: {end}" if end else "it printed nothing")
        )


def require_same(ours: Mapping[int, BatchTimes], theirs: Mapping[int, BatchTimes], peer: Contender) -> None:
    """Raise unless both programs computed the same, as the means of each output's magnitudes tell."""
    for size, mine in ours.items():
        other = theirs[size].outputs
        common = mine.outputs.keys() & other.keys()
        if not common:
            names = [", ".join(sorted(each)) for each in (other, mine.outputs)]
            raise ContenderFailed(f"{peer.name}: its outputs are {names[0]}, and Slipway's {names[1]}")
        for name in sorted(common):
            if abs(other[name] - mine.outputs[name]) > _AGREE * max(abs(mine.outputs[name]), 1e-6):
                raise ContenderFailed(
                    f"{peer.name}: it computes something else: for a batch of {size}, the mean magnitude of "
                    f"{name} is {other[name]:.6g}, and Slipway's {mine.outputs[name]:.6g}"
                )


def parse_command(text: str) -> tuple[str, ...]:
    """Split a command as a shell would.

    Raises:
        ValueError: it is empty, or a quote in it is not closed.
    """
    words: Sequence[str] = shlex.split(text)
    if not words:
        raise ValueError("the command is empty")
    return tuple(words)


@contextmanager
def _only_cores(count: int) -> Iterator[None]:
    """Let processes that are started here run on the first cores only."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _child_seconds() -> float:
    """Return the seconds of processor time of all ended children and their descendants."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

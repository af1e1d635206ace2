"""Run scripts, each in a process of its own, and tell how each one ends."""

import math
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from exporter.minify.repro_script import Step
from exporter.minify.script_process import ScriptRequest, ScriptStatus

_CHILD = "exporter.minify.script_process"
_STEP_MARK = "step: "
# Once a script has hung, the time limit of further ones is lower:
_AFTER_HANG = 4.0  # times the duration of the slowest script that ended,
_UNKNOWN = 0.25  # or this fraction of the limit if none has ended yet,
_LEAST_S = 5.0  # but at least so many seconds
# Inductor's compile pool has threads, which do not survive a fork: the fork would wait for them for ever.
_NO_POOL = "TORCHINDUCTOR_COMPILE_THREADS=1"
_NO_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK=1"  # once a process has used CUDA, its forks cannot


@dataclass(frozen=True, kw_only=True)
class Ending:
    """The failure of a script: its step and its kind. Equal values mean the same failure."""

    step: Step
    kind: str  # "error CppCompileError", "signal 11", "hang"

    def __str__(self) -> str:
        return f"{self.kind} in step {self.step}"


@dataclass(frozen=True, kw_only=True)
class ExpectedEnding:
    """The endings that count as the failure searched for."""

    steps: tuple[Step, ...] = tuple(Step)
    kinds: tuple[str, ...] = ()  # of `Ending.kind`, the whole or the first word; empty: any

    def matches(self, ending: Ending) -> bool:
        alike = {ending.kind, ending.kind.partition(" ")[0]}
        return ending.step in self.steps and (not self.kinds or not alike.isdisjoint(self.kinds))


class ScriptRunner:
    """Forks a process per script from one that has torch imported; a context manager."""

    def __init__(
        self, libraries: Sequence[str], folder: Path, *, limit_s: float, until: float = math.inf
    ) -> None:
        """Write scripts and their logs below `folder`.

        A script may take `limit_s` seconds, less once one has hung; none runs past `until`, a time of the
        monotonic clock.
        """
        self._libraries = libraries
        self._folder = folder
        self._limit_s = limit_s
        self._until = until
        self._hung = False
        self._slowest_s = 0.0  # of the scripts that ended
        self.scripts_run = 0

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as starting:
            self._process = starting.enter_context(
                subprocess.Popen(
                    ["env", _NO_POOL, _NO_DRIVER, sys.executable, "-P", "-m", _CHILD, *self._libraries],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            starting.callback(self._process.kill)
            self._answer()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def run_script(self, text: str, *, last_step: Step = Step.COMPARE) -> Ending | None:
        """Run a script; return how it failed, or None if it passed or was not finished at `until`."""
        start = time.monotonic()
        limit_s, left_s = self._script_limit_s(), self._until - start
        if left_s <= 0:
            return None
        self.scripts_run += 1
        script, log = self._folder / "smallest.py", self._folder / "smallest.log"
        script.write_text(text)
        assert self._process.stdin is not None
        request = ScriptRequest(script=script, log=log, last_step=last_step, limit_s=min(limit_s, left_s))
        self._process.stdin.write(request.model_dump_json() + "\n")
        self._process.stdin.flush()
        status = self._answer().status
        if status is not None:
            self._slowest_s = max(self._slowest_s, time.monotonic() - start)
        elif left_s < limit_s:
            return None
        else:
            self._hung = True
        return None if status == 0 else _read_ending(status, log.read_text(errors="replace"))

    def _script_limit_s(self) -> float:
        """Return the next script's time limit; one hanging script, run twice, must not use up the search."""
        if not self._hung:
            return self._limit_s
        usual = _AFTER_HANG * self._slowest_s if self._slowest_s else _UNKNOWN * self._limit_s
        return min(self._limit_s, max(_LEAST_S, usual))

    @property
    def log(self) -> str:
        """The output of the last script."""
        return (self._folder / "smallest.log").read_text(errors="replace")

    def _answer(self) -> ScriptStatus:
        assert self._process.stdout is not None
        return ScriptStatus.model_validate_json(self._process.stdout.readline())


def _read_ending(status: int | None, log: str) -> Ending:
    lines = log.splitlines()
    reached = [line.removeprefix(_STEP_MARK) for line in lines if line.startswith(_STEP_MARK)]
    if not reached:  # the fault is in the script's own text, not in the graph
        raise ValueError(f"a script did not start: {lines[-1] if lines else status}")
    step = Step(reached[-1])
    if status is None:
        return Ending(step=step, kind="hang")
    if status < 0:
        return Ending(step=step, kind=f"signal {-status}")
    named = [line.partition(":")[0] for line in lines if line[:1].isalpha() and ":" in line]
    words = [name for name in named if " " not in name]
    raised = [name.rpartition(".")[2] for name in words if _names_exception(name)]
    return Ending(step=step, kind=f"error {raised[-1] if raised else status}")


def _names_exception(name: str) -> bool:
    """Return whether a log line that begins with `name` reports an exception; not all end in Error."""
    own = name.rpartition(".")[2]
    return own.endswith(("Error", "Exception", "Failed")) or ("." in name and own[:1].isupper())

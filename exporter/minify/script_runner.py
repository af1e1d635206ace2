"""Tries scripts in processes of their own, and says how each of them ends."""

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
_AFTER_HANG = 4.0  # times the slowest script that came to an end: what one may take once one has hung
_LEAST_S, _UNKNOWN = 5.0, 0.25  # at least; of the limit, if none came to an end yet
# Inductor's pool of compilers has threads, which a fork does not have: it would wait for them for ever.
_NO_POOL = "TORCHINDUCTOR_COMPILE_THREADS=1"
_NO_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK=1"  # a GPU that the parent has spoken to is lost to its forks


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a script failed: where, and in which way. Two that are equal failed in the same way."""

    step: Step
    kind: str  # "error CppCompileError", "signal 11", "hang"

    def __str__(self) -> str:
        return f"{self.kind} in step {self.step}"


@dataclass(frozen=True, kw_only=True)
class ExpectedEnding:
    """How what failed showed itself: a script that ends otherwise fails in another way."""

    steps: tuple[Step, ...] = tuple(Step)
    kinds: tuple[str, ...] = ()  # whole, or the first word of one; all of them if there are none

    def matches(self, ending: Ending) -> bool:
        alike = {ending.kind, ending.kind.partition(" ")[0]}
        return ending.step in self.steps and (not self.kinds or not alike.isdisjoint(self.kinds))


class ScriptRunner:
    """Forks a process per script from one that has torch imported; a context manager."""

    def __init__(
        self, libraries: Sequence[str], folder: Path, *, limit_s: float, until: float = math.inf
    ) -> None:
        """Scripts and their logs go below `folder`.

        Each may take `limit_s`, less once one has hung, and none goes on past `until` on the monotonic clock.
        """
        self._libraries = libraries
        self._folder = folder
        self._limit_s = limit_s
        self._until = until
        self._hung = False
        self._slowest_s = 0.0  # of those that came to an end
        self.scripts_run = 0

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as starting:
            self._process = starting.enter_context(
                subprocess.Popen(
                    ["env", _NO_POOL, _NO_DRIVER, sys.executable, "-m", _CHILD, *self._libraries],
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
        """How the script failed; None if it did not, or time was up before it ended."""
        begun = time.monotonic()
        limit_s, left_s = self._script_limit_s(), self._until - begun
        if left_s <= 0:
            return None
        self.scripts_run += 1
        script, log = self._folder / "smallest.py", self._folder / "smallest.log"
        script.write_text(text)
        assert self._process.stdin is not None
        trial = ScriptRequest(script=script, log=log, last_step=last_step, limit_s=min(limit_s, left_s))
        self._process.stdin.write(trial.model_dump_json() + "\n")
        self._process.stdin.flush()
        status = self._answer().status
        if status is not None:
            self._slowest_s = max(self._slowest_s, time.monotonic() - begun)
        elif left_s < limit_s:
            return None
        else:
            self._hung = True
        return None if status == 0 else _read_ending(status, log.read_text(errors="replace"))

    def _script_limit_s(self) -> float:
        """Without this a single hang, tried twice, would take all of a search's time."""
        if not self._hung:
            return self._limit_s
        usual = _AFTER_HANG * self._slowest_s if self._slowest_s else _UNKNOWN * self._limit_s
        return min(self._limit_s, max(_LEAST_S, usual))

    @property
    def log(self) -> str:
        """What the last script said."""
        return (self._folder / "smallest.log").read_text(errors="replace")

    def _answer(self) -> ScriptStatus:
        assert self._process.stdout is not None
        return ScriptStatus.model_validate_json(self._process.stdout.readline())


def _read_ending(status: int | None, log: str) -> Ending:
    lines = log.splitlines()
    reached = [line.removeprefix(_STEP_MARK) for line in lines if line.startswith(_STEP_MARK)]
    if not reached:  # its own text is wrong: that says nothing of the graph
        raise ValueError(f"a script did not begin: {lines[-1] if lines else status}")
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
    """Whether a line that begins so tells of an exception: not all of torch's are called errors."""
    own = name.rpartition(".")[2]
    return own.endswith(("Error", "Exception", "Failed")) or ("." in name and own[:1].isupper())

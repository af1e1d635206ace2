"""Running packages in a fresh process with input checks on, as a server would: a crash does no harm here."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pydantic import BaseModel
from safetensors.torch import load_file, save_file
from torch import Tensor

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.errors import DimPlanViolated, OutOfMemory, PackageCrashed
from exporter.towers.lookup import LookUp
from exporter.verify.numerics import FP32_TOLERANCE
from exporter.verify.observe import THREADS, Behaviour, CallsAtOnce, Growth
from exporter.verify.observe_dtypes import TakenAs
from exporter.verify.reload import Link, ObserveRequest, RunReply, RunRequest, Setup
from exporter.verify.runner_process import CALL_LIMIT_S, RunnerProcess


class Refused(Exception):
    """The package rejected the inputs, which is the right answer to inputs that contradict each other."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Answer:
    """The outputs of a first run, with what its repeats tell."""

    outputs: dict[str, Tensor]
    times_ms: tuple[float, ...] = ()  # of each repeat
    # Outputs that a repeat changed, each at its furthest from the first.
    moved: Mapping[str, Tensor] = field(default_factory=dict)
    changed_inputs: tuple[str, ...] = ()  # where a repeat changed outputs
    # Outputs that are others where torch has another number of threads.
    moved_by_threads: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The observation that was asked for; the others are None."""

    call: Behaviour | None = None
    unchecked: tuple[TakenAs, ...] = ()  # inputs of other dtypes that were not refused for these
    growth: Growth | None = None
    calls_at_once: CallsAtOnce | None = None
    # Of each thread whose outputs differed: those of a call alone, and those that differ most.
    differing: tuple[tuple[Mapping[str, Tensor], Mapping[str, Tensor]], ...] = ()
    steps: tuple[Mapping[str, Tensor], ...] = ()  # the outputs of each package that took its inputs


def _save_inputs(inputs: Mapping[str, Tensor], path: Path) -> None:
    """Write inputs for the process; contiguous copies, as safetensors refuses views that share storage."""
    save_file({name: value.cpu().clone().contiguous() for name, value in inputs.items()}, path)


class PackageRunner:
    """A tower's loaded package, or its chain of them, in a process of its own; a context manager."""

    def __init__(  # noqa: PLR0913  what is run, where and for how long: all by name
        self,
        chain: Sequence[Link],
        *,
        op_libraries: tuple[str, ...],
        scratch: Path,
        device: str = "cpu",
        tf32: bool = False,
        threads: int = 1,
        lookup: LookUp | None = None,
        limit_s: float = CALL_LIMIT_S,
        ahead: RunnerProcess | None = None,
    ) -> None:
        """Prepare to run `chain`; tensors travel as files below `scratch`.

        `tf32` allows TF32 to the packages' calls of cuBLAS. A `lookup` runs in this process, in front of the
        chain, where no package looks up.

        Loading the chain, and each call, may take `limit_s` seconds. The process is `ahead` if that is still
        free, else a new one.
        """
        self._setup = Setup(
            chain=tuple(chain), op_libraries=op_libraries, device=device, threads=threads, tf32=tf32
        )
        self._lookup = lookup
        self._scratch = scratch
        self._ahead = ahead
        self._limit_s = limit_s
        self.has_crashed = False

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            starting.enter_context(self.starting())
            self.await_loaded()
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @contextmanager
    def starting(self) -> Iterator[Self]:
        """Enter this runner while its chain is still being loaded; before the first call, await that."""
        with ExitStack() as running:
            if self._ahead is not None and self._ahead.take():
                self._runner = self._ahead
                running.push(self._ahead)
            else:
                server = self._ahead.server if self._ahead is not None else None
                self._runner = running.enter_context(RunnerProcess(self._scratch, server=server))
            self._send(self._setup)
            yield self

    def await_loaded(self) -> None:
        """Wait until the chain is loaded.

        Raises:
            OutOfMemory: it took more memory than there was.
            PackageCrashed: the process died, or took too long and was ended.
        """
        try:
            self.taken = self.receive().taken
        except PackageCrashed as crash:
            # That memory ran out while the package was loaded may be said on stderr and nowhere else.
            if memory := as_out_of_memory(RuntimeError("\n".join(self._runner.last_words)), "loading"):
                raise memory from crash
            raise

    @property
    def pid(self) -> int:
        """Process id of the process that holds the package."""
        return self._runner.process.pid

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run once.

        Raises:
            Refused: the package, or the lookup in front of it, rejected the inputs.
            OutOfMemory: it took more memory than there was.
            PackageCrashed: its process died, or took too long and was ended.
        """
        return self.ask(inputs).outputs

    def ask(self, inputs: Mapping[str, Tensor], *, repeats: int = 0, limit_s: float = CALL_LIMIT_S) -> Answer:
        """Run once for the outputs, then `repeats` times at most; none begins after `limit_s` seconds.

        Raises as `run` does.
        """
        return self.begin(inputs, repeats=repeats, limit_s=limit_s).answer()

    def begin(
        self, inputs: Mapping[str, Tensor], *, repeats: int = 0, limit_s: float = CALL_LIMIT_S
    ) -> "Call":
        """Begin what `ask` does; the answer must be taken before another call begins.

        Raises:
            Refused: the lookup in front of the packages rejected the inputs.
        """
        entering, lookup_ms = self._look_up(inputs, repeats)
        folder = self._runner.folder
        request = RunRequest(
            inputs=folder / "inputs.safetensors",
            outputs=folder / "outputs.safetensors",
            moved=folder / "moved.safetensors",
            repeats=repeats,
            limit_s=limit_s,
        )
        _save_inputs(entering, request.inputs)
        self._send(request)
        return Call(self, request, lookup_ms)

    def observe(
        self,
        what: Literal["call", "growth", "calls_at_once", "steps"],
        inputs: Mapping[str, Tensor],
        others: Mapping[str, Tensor],
        *,
        rounding: float = FP32_TOLERANCE,
    ) -> Observed:
        """Observe calls with two sets of inputs: see `exporter.verify.observe`; raises as `run` does.

        Runs on the same inputs may differ by `rounding` of an output's scale.
        """
        folder = self._runner.folder
        request = ObserveRequest(
            observe=what,
            inputs=folder / "inputs.safetensors",
            others=folder / "others.safetensors",
            folder=folder,
            rounding=rounding,
        )
        for path, given in ((request.inputs, inputs), (request.others, others)):
            _save_inputs(self._look_up(given, repeats=0)[0], path)
        self._send(request)
        reply = self.receive()
        if reply.refused is not None:
            raise Refused(reply.refused)
        differing = tuple(
            (load_file(request.alone(thread)), load_file(request.at_once(thread)))
            for thread in range(THREADS)
            if reply.calls_at_once and request.at_once(thread).exists()
        )
        return Observed(
            call=reply.call,
            unchecked=reply.unchecked,
            growth=reply.growth,
            calls_at_once=reply.calls_at_once,
            differing=differing,
            steps=tuple(load_file(request.step(number)) for number in range(reply.steps)),
        )

    def _look_up(self, inputs: Mapping[str, Tensor], repeats: int) -> tuple[Mapping[str, Tensor], float]:
        """Return the inputs of the chain, and the milliseconds of the lookup in front of it for repeats."""
        if self._lookup is None:
            return inputs, 0.0
        try:
            entering = self._lookup(inputs)
        except (RuntimeError, DimPlanViolated) as error:  # as a package would refuse them
            if memory := as_out_of_memory(error, "lookups"):
                raise memory from error
            raise Refused(str(error).strip().partition("\n")[0]) from error
        if not repeats:
            return entering, 0.0
        begun = time.perf_counter()
        self._lookup(inputs)
        return entering, (time.perf_counter() - begun) * 1e3

    def _send(self, request: BaseModel) -> None:
        self._runner.send(request, limit_s=self._limit_s)

    @property
    def has_answered(self) -> bool:
        """Return whether `receive` need not wait."""
        return self._runner.has_spoken

    def receive(self) -> RunReply:
        """Wait for the answer to the request that was sent; raises as `run` does, but no `Refused`."""
        try:
            reply = self._runner.receive(RunReply)
        except PackageCrashed:
            self.has_crashed = True
            raise
        if reply.out_of_memory is not None:
            raise OutOfMemory(f"the process running the package: {reply.out_of_memory}")
        return reply


class Call:
    """A call that runs in the process of the package, while this process may do something else."""

    def __init__(self, runner: PackageRunner, request: RunRequest, lookup_ms: float) -> None:
        self._runner = runner
        self._request = request
        self._lookup_ms = lookup_ms

    @property
    def has_ended(self) -> bool:
        """Return whether `answer` need not wait."""
        return self._runner.has_answered

    def answer(self) -> Answer:
        """Wait for the end of the call; raises as `PackageRunner.run` does."""
        reply = self._runner.receive()
        if reply.refused is not None:
            raise Refused(reply.refused)
        return Answer(
            outputs=load_file(self._request.outputs),
            times_ms=tuple(each + self._lookup_ms for each in reply.times_ms),
            moved=load_file(self._request.moved) if reply.has_moved else {},
            changed_inputs=reply.changed_inputs,
            moved_by_threads=load_file(self._request.moved_by_threads) if reply.has_moved_by_threads else {},
        )

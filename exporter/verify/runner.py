"""Running packages in a fresh process with input checks on, as a server would: a crash does no harm here."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread, Timer
from types import TracebackType
from typing import IO, Literal, Self, TypeVar

from pydantic import BaseModel, ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor

from exporter.aoti.out_of_memory import as_out_of_memory
from exporter.errors import DimPlanViolated, OutOfMemory, PackageCrashed
from exporter.towers.lookup import LookUp
from exporter.verify.observe import THREADS, Behaviour, CallsAtOnce, Growth
from exporter.verify.reload import Link, ObserveRequest, RunReply, RunRequest, Setup

_CHILD = "exporter.verify.reload"
# AOTInductor reads past the end of short inputs unless it is set; servers should set it (docs/serving.md).
_INPUT_CHECKS = "AOTI_RUNTIME_CHECK_INPUTS=1"
_WAITING = "OMP_WAIT_POLICY=passive"  # idle threads sleep; spinning ones hold cores that others need
# A package is native code, of an attempt or of whoever published it: it has no business with the store.
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    *("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"),
    *("ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN"),
    "GOOGLE_APPLICATION_CREDENTIALS",
    *("AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    *("AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PATH", "AZURE_CLIENT_CERTIFICATE_PASSWORD"),
    *("AZURE_FEDERATED_TOKEN_FILE", "AZURE_PASSWORD", "IDENTITY_HEADER", "MSI_SECRET"),
)
# Unset, they would be those of the home.
_EMPTY_FILES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG", "AZURE_CONFIG_DIR")
_WITHOUT_CREDENTIALS = (
    *(f"--unset={name}" for name in _CREDENTIALS),
    *(f"{name}={os.devnull}" for name in _EMPTY_FILES),
)
_NEARLY_FULL = 16 << 20  # bytes that are free where a disk is as good as full
CALL_LIMIT_S = 900.0  # default limit of one call, and of loading
Reply = TypeVar("Reply", bound=BaseModel)


class Refused(Exception):
    """The package rejected the inputs, which is the right answer to inputs that contradict each other."""


class RunnerProcess:
    """A process that will run a package, as a context manager: it imports torch while the package is built.

    The first `PackageRunner` that receives it uses it alone, and ends it.
    """

    def __init__(self, scratch: Path, *, program: str = _CHILD) -> None:
        """Prepare a process whose files go into a temporary folder below `scratch`, removed when it ends.

        `program` is the module that it runs; each line on its stdin is a request, each on its stdout a reply.
        """
        self._scratch = scratch
        self._program = program
        self._free = True
        self.last_words: deque[str] = deque(maxlen=20)

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            folder = tempfile.TemporaryDirectory(dir=self._scratch, prefix="run-")
            self.folder = Path(starting.enter_context(folder))
            self.process = starting.enter_context(
                subprocess.Popen(
                    # AOTInductor unpacks packages below TMPDIR, and a killed process leaves them there.
                    [
                        "env",
                        *_WITHOUT_CREDENTIALS,
                        _INPUT_CHECKS,
                        _WAITING,
                        f"TMPDIR={self.folder}",
                        *(sys.executable, "-m", self._program),
                    ],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            starting.callback(self._hang_up)
            assert self.process.stderr is not None
            self.listener = Thread(target=self._listen, args=(self.process.stderr,), daemon=True)
            self.listener.start()
            starting.callback(self.listener.join)
            starting.callback(self.process.kill)  # it holds nothing that would need a gentler end
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    def take(self) -> bool:
        """Claim the process; return whether it was free and is alive."""
        free, self._free = self._free and self.process.poll() is None, False
        return free

    def exchange(self, request: BaseModel, reply_type: type[Reply], *, limit_s: float) -> Reply:
        """Send a request and return the answer to it.

        Raises:
            PackageCrashed: the process died, gave no such answer, or took more than `limit_s` and was ended.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        overrun = Event()
        limit = Timer(limit_s, self._end, (overrun,))
        limit.start()
        try:
            self.process.stdin.write(request.model_dump_json() + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            limit.cancel()
        if overrun.is_set():
            raise PackageCrashed(
                f"the process running the package took more than {limit_s:g} s and was ended"
            )
        if not line:
            status = self.process.wait()
            self.listener.join(timeout=5)
            raise PackageCrashed(
                f"the process running the package ended with status {status}: "
                + " | ".join(self.last_words)[-1000:],
                hint=_disk_full_hint(self.folder),
            )
        return self._parse(line, reply_type)

    def _end(self, overrun: Event) -> None:
        overrun.set()
        self.process.kill()

    def _parse(self, line: str, reply_type: type[Reply]) -> Reply:
        try:
            return reply_type.model_validate_json(line)
        except ValidationError as error:
            self.process.kill()  # what it says next may be the answer to this call
            raise PackageCrashed(
                f"the process running the package gave no answer but {line.strip()[:200]!r}"
            ) from error

    def _hang_up(self) -> None:
        """Close the process's input before waiting for its end.

        Otherwise the wait would flush what a dead process did not read, and its error would hide the crash.
        """
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def _listen(self, stderr: IO[str]) -> None:
        with stderr:
            for line in stderr:
                self.last_words.append(line.rstrip())


def _disk_full_hint(folder: Path) -> str:
    """Return the hint that the disk is full, where packages are unpacked; empty if it is not."""
    free = shutil.disk_usage(folder).free
    return f"only {free:,} bytes are free at {folder}: make room there" if free < _NEARLY_FULL else ""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """The observation that was asked for; the others are None."""

    call: Behaviour | None = None
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
            if self._ahead is not None and self._ahead.take():
                self._runner = self._ahead
                starting.push(self._ahead)
            else:
                self._runner = starting.enter_context(RunnerProcess(self._scratch))
            self._process = self._runner.process
            try:
                self.taken = self._ask(self._setup).taken
            except PackageCrashed as crash:
                # That memory ran out while the package was loaded may be said on stderr and nowhere else.
                if memory := as_out_of_memory(RuntimeError("\n".join(self._runner.last_words)), "loading"):
                    raise memory from crash
                raise
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def pid(self) -> int:
        """Process id of the process that holds the package."""
        return self._process.pid

    def run(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run once.

        Raises:
            Refused: the package, or the lookup in front of it, rejected the inputs.
            OutOfMemory: it took more memory than there was.
            PackageCrashed: its process died, or took too long and was ended.
        """
        return self.time(inputs, repeats=0)[0]

    def time(self, inputs: Mapping[str, Tensor], *, repeats: int) -> tuple[dict[str, Tensor], float | None]:
        """Run once for the outputs, then `repeats` times for the median milliseconds of a call."""
        entering, lookup_ms = self._look_up(inputs, repeats)
        request = RunRequest(
            inputs=self._runner.folder / "inputs.safetensors",
            outputs=self._runner.folder / "outputs.safetensors",
            repeats=repeats,
        )
        _save_inputs(entering, request.inputs)
        reply = self._ask(request)
        if reply.refused is not None:
            raise Refused(reply.refused)
        median_ms = None if reply.median_ms is None else reply.median_ms + lookup_ms
        return load_file(request.outputs), median_ms

    def observe(
        self,
        what: Literal["call", "growth", "calls_at_once", "steps"],
        inputs: Mapping[str, Tensor],
        others: Mapping[str, Tensor],
    ) -> Observed:
        """Observe calls with two sets of inputs: see `exporter.verify.observe`; raises as `run` does."""
        folder = self._runner.folder
        request = ObserveRequest(
            observe=what,
            inputs=folder / "inputs.safetensors",
            others=folder / "others.safetensors",
            folder=folder,
        )
        for path, given in ((request.inputs, inputs), (request.others, others)):
            _save_inputs(self._look_up(given, repeats=0)[0], path)
        reply = self._ask(request)
        if reply.refused is not None:
            raise Refused(reply.refused)
        differing = tuple(
            (load_file(request.alone(thread)), load_file(request.at_once(thread)))
            for thread in range(THREADS)
            if reply.calls_at_once and request.at_once(thread).exists()
        )
        return Observed(
            call=reply.call,
            growth=reply.growth,
            calls_at_once=reply.calls_at_once,
            differing=differing,
            steps=tuple(load_file(request.step(number)) for number in range(reply.steps)),
        )

    def _look_up(self, inputs: Mapping[str, Tensor], repeats: int) -> tuple[Mapping[str, Tensor], float]:
        """Return the inputs of the chain, and the median milliseconds of the lookup in front of it."""
        if self._lookup is None:
            return inputs, 0.0
        try:
            entering = self._lookup(inputs)
        except (RuntimeError, DimPlanViolated) as error:  # as a package would refuse them
            if memory := as_out_of_memory(error, "lookups"):
                raise memory from error
            raise Refused(str(error).strip().partition("\n")[0]) from error
        times_ms = []
        for _ in range(repeats):
            begun = time.perf_counter()
            self._lookup(inputs)
            times_ms.append((time.perf_counter() - begun) * 1e3)
        return entering, statistics.median(times_ms) if times_ms else 0.0

    def _ask(self, request: BaseModel) -> RunReply:
        try:
            reply = self._runner.exchange(request, RunReply, limit_s=self._limit_s)
        except PackageCrashed:
            self.has_crashed = True
            raise
        if reply.out_of_memory is not None:
            raise OutOfMemory(f"the process running the package: {reply.out_of_memory}")
        return reply

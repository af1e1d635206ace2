"""A process that runs packages without the credentials of this one; requests and replies are JSON lines."""

import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread, Timer
from types import TracebackType
from typing import IO, Self, TypeVar

from pydantic import BaseModel, ValidationError

from exporter.distributed.fork_server import ForkedProcess, ForkServer, start_server
from exporter.errors import PackageCrashed

_CHILD, _SERVER = "exporter.verify.reload", "exporter.verify.runner_server"
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
# Arguments of `env` for a process that runs packages, or forks others that do.
RUNNER_ENVIRONMENT = (
    *(f"--unset={name}" for name in _CREDENTIALS),
    *(f"{name}={os.devnull}" for name in _EMPTY_FILES),
    *(_INPUT_CHECKS, _WAITING),
)
_NEARLY_FULL = 16 << 20  # bytes that are free where a disk is as good as full
CALL_LIMIT_S = 900.0  # default limit of one call, and of loading
Reply = TypeVar("Reply", bound=BaseModel)


def make_server() -> ForkServer:
    """Return a server of the processes that run packages: it imports torch once for all of them."""
    command = ["env", *RUNNER_ENVIRONMENT, sys.executable, "-P", "-m", _SERVER]
    return ForkServer(partial(start_server, command))


class RunnerProcess:
    """A process that will run a package, as a context manager: it imports torch while the package is built.

    The first `PackageRunner` that receives it uses it alone, and ends it.
    """

    def __init__(self, scratch: Path, *, program: str = _CHILD, server: ForkServer | None = None) -> None:
        """Prepare a process whose files go into a temporary folder below `scratch`, removed when it ends.

        `program` is the module that it runs; each line on its stdin is a request, each on its stdout a reply.
        A `server` made by `make_server` forks it.
        """
        self.server = server
        self._scratch = scratch
        self._program = program
        self._free = True
        self._limit: _TimeLimit | None = None
        self.last_words: deque[str] = deque(maxlen=20)

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            folder = tempfile.TemporaryDirectory(dir=self._scratch, prefix="run-")
            self.folder = Path(starting.enter_context(folder))
            self.process = starting.enter_context(self._start())
            starting.callback(self._hang_up)
            assert self.process.stderr is not None
            self.listener = Thread(target=self._listen, args=(self.process.stderr,), daemon=True)
            self.listener.start()
            starting.callback(self.listener.join)
            starting.callback(self.process.kill)  # it holds nothing that would need a gentler end
            self._running = starting.pop_all()
        return self

    def _start(self) -> AbstractContextManager[subprocess.Popen[str] | ForkedProcess]:
        if self.server is not None and self.server.is_alive:
            return self.server.start(self.folder, self._program)
        return subprocess.Popen(
            # AOTInductor unpacks packages below TMPDIR, and a killed process leaves them there.
            ["env", *RUNNER_ENVIRONMENT, f"TMPDIR={self.folder}", sys.executable, "-P", "-m", self._program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._limit is not None:  # of a request whose answer nobody waited for
            self._limit.timer.cancel()
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
        self.send(request, limit_s=limit_s)
        return self.receive(reply_type)

    def send(self, request: BaseModel, *, limit_s: float) -> None:
        """Send a request, the answer to which must be received before the next one is sent."""
        assert self.process.stdin is not None
        self._limit = _TimeLimit(limit_s, self.process)
        with suppress(BrokenPipeError):  # there will be no answer, and that is reported
            self.process.stdin.write(request.model_dump_json() + "\n")
            self.process.stdin.flush()

    def receive(self, reply_type: type[Reply]) -> Reply:
        """Wait for the answer to the request that was sent; raises as `exchange` does."""
        limit, stdout = self._limit, self.process.stdout
        assert limit is not None and stdout is not None
        try:
            line = stdout.readline()
        finally:
            limit.timer.cancel()
        if limit.is_over.is_set():
            raise PackageCrashed(
                f"the process running the package took more than {limit.seconds:g} s and was ended"
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

    @property
    def has_spoken(self) -> bool:
        """Return whether the answer to the request that was sent has come, or the process has ended."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0.0)[0])

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


class _TimeLimit:
    """The time until a process must have answered; it is killed if it has not."""

    def __init__(self, seconds: float, process: subprocess.Popen[str] | ForkedProcess) -> None:
        self.seconds = seconds
        self.is_over = Event()
        self._process = process
        self.timer = Timer(seconds, self._end)
        self.timer.daemon = True
        self.timer.start()

    def _end(self) -> None:
        self.is_over.set()
        self._process.kill()


def _disk_full_hint(folder: Path) -> str:
    """Return the hint that the disk is full, where packages are unpacked; empty if it is not."""
    free = shutil.disk_usage(folder).free
    return f"only {free:,} bytes are free at {folder}: make room there" if free < _NEARLY_FULL else ""

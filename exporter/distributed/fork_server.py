"""A process that imports what its children need, and forks one for each request: these start at once.

The server is started before its user imports anything itself, and shared by all forks of its user. It knows
nothing of them but what they send: each child has its pipes, and a channel to its user, by which it is ended.
"""

import os
import select
import signal
import socket
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, NoReturn, Protocol, Self

from exporter.distributed.isolation import die_with_parent, name_process

_KILL, _WAIT = b"kill", b"wait"
_PIPES = 3  # stdin, stdout, stderr
_BETWEEN = b"\0"  # the folder and the program in a request
_MESSAGE_BYTES = 8192
_POLL_S = 0.005
_LOST = -signal.SIGKILL  # status of a child whose server is gone: it was killed with it


class Process(Protocol):
    """A process that its parent ends."""

    def kill(self) -> None: ...

    def wait(self) -> int: ...


def start_server(command: Sequence[str], number: int) -> Process:
    """Run a command whose last argument will be the number of the server's socket."""
    return subprocess.Popen(
        [*command, str(number)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[number]
    )


def fork_server(run: Callable[[str], None], number: int, *, closes: Sequence[int] = ()) -> Process:
    """Fork this process, which has imported what children need and has one thread; the fork serves.

    The fork closes the descriptors `closes`, which are not for its children.
    """
    pid = os.fork()
    if pid == 0:
        try:
            name_process("runners")
            for each in closes:
                os.close(each)
            serve(number, run)
        finally:
            os._exit(0)
    return _Fork(pid)


@dataclass(frozen=True)
class _Fork:
    pid: int

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class ForkServer:
    """The server as its user sees it: a context manager."""

    def __init__(self, start: Callable[[int], Process]) -> None:
        """Prepare to `start` the server's process, which serves the socket of the number that it is given."""
        self._start = start

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            starting.enter_context(self._socket)
            with theirs:
                process = self._start(theirs.fileno())
            starting.callback(process.wait)
            starting.callback(process.kill)
            self._running = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running.close()

    @property
    def is_alive(self) -> bool:
        """Return whether the server can still be asked; any fork of its user sees it."""
        ended = select.poll()
        ended.register(self._socket, 0)  # tells of a hang-up in any case
        return not ended.poll(0)

    @contextmanager
    def start(self, temporary: Path, program: str) -> Iterator["ForkedProcess"]:
        """Start a child that runs `program` with `temporary` as its TMPDIR; at the end it is killed.

        Raises:
            OSError: the server has ended.
        """
        with ExitStack() as opened:
            pipes = [os.pipe() for _ in range(_PIPES)]
            theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
            stdin, (stdout, stderr) = os.fdopen(pipes[0][1], "w"), (os.fdopen(each) for each, _ in pipes[1:])
            for file in (stdin, stdout, stderr):
                opened.callback(_close, file)
            channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened.enter_context(channel)
            try:
                with other:
                    request = os.fsencode(temporary) + _BETWEEN + program.encode()
                    socket.send_fds(self._socket, [request], [*theirs, other.fileno()])
            finally:
                for each in theirs:
                    os.close(each)
            process = ForkedProcess(stdin, stdout, stderr, channel)
            opened.callback(process.wait)
            opened.callback(process.kill)
            yield process


class ForkedProcess:
    """A child of the server, used like a `subprocess.Popen` with pipes."""

    def __init__(self, stdin: IO[str], stdout: IO[str], stderr: IO[str], channel: socket.socket) -> None:
        self.stdin, self.stdout, self.stderr = stdin, stdout, stderr
        self._channel = channel
        self._pid: int | None = None
        self._status: int | None = None

    @property
    def pid(self) -> int:
        """Process id; waits until the server has forked the child."""
        if self._pid is None:
            answer = self._channel.recv(_MESSAGE_BYTES)
            if not answer:
                raise ConnectionError("the server of this process has ended")
            self._pid = int(answer)
        return self._pid

    def poll(self) -> int | None:
        """Return the exit status if it has been waited for."""
        return self._status

    def kill(self) -> None:
        """Kill the child, if it has not ended."""
        with suppress(OSError):
            self._channel.send(_KILL)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the child; return its exit status, negative for a signal."""
        if self._status is None:
            status = b""
            self._channel.settimeout(timeout)
            with suppress(ConnectionError):
                _ = self.pid  # comes first on the channel
                self._channel.send(_WAIT)
                status = self._channel.recv(_MESSAGE_BYTES)
            self._status = int(status) if status else _LOST
        return self._status


@dataclass
class _Child:
    pid: int
    status: int | None = None
    is_awaited: bool = False

    def reap(self) -> bool:
        """Return whether the child has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def kill(self) -> None:
        """Kill the child; its number cannot belong to another process before it has been reaped."""
        if not self.reap():
            os.kill(self.pid, signal.SIGKILL)


def serve(number: int, run: Callable[[str], None]) -> None:
    """Fork a child for each request on the socket of that number, until no user is left.

    The child calls `run` with the program that was asked for.
    """
    die_with_parent()
    children: dict[socket.socket, _Child] = {}
    with socket.socket(fileno=number) as requests:
        while True:
            awaited = [channel for channel, child in children.items() if child.is_awaited]
            ready, _, _ = select.select([requests, *children], [], [], _POLL_S if awaited else None)
            for channel in awaited:
                if children[channel].reap():
                    children[channel].is_awaited = False
                    with suppress(OSError):
                        channel.send(str(children[channel].status).encode())
            for each in ready:
                if each is not requests:
                    _obey(each, children)
                elif not _accept(requests, children, run):
                    return  # and children die with their parent


def _accept(
    requests: socket.socket, children: dict[socket.socket, _Child], run: Callable[[str], None]
) -> bool:
    """Fork a child for one request; return whether there was one."""
    request, files, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES, _PIPES + 1)
    if not files:
        return False
    channel = socket.socket(fileno=files.pop())
    pid = os.fork()
    if pid == 0:
        for each in (requests, channel, *children):
            each.close()
        folder, _, program = request.partition(_BETWEEN)
        _become_child(os.fsdecode(folder), files, partial(run, program.decode()))
    for file in files:
        os.close(file)
    children[channel] = _Child(pid)
    with suppress(OSError):  # its user may be gone
        channel.send(str(pid).encode())
    return True


def _obey(channel: socket.socket, children: dict[socket.socket, _Child]) -> None:
    """Do what a child's user asks for; a user that is gone needs the child no more."""
    child = children[channel]
    try:
        request = channel.recv(_MESSAGE_BYTES)
    except OSError:
        request = b""
    if request == _WAIT:
        child.is_awaited = True
        return
    child.kill()
    if not request:
        del children[channel]
        channel.close()
        while not child.reap():
            time.sleep(_POLL_S)


def _become_child(temporary: str, files: Sequence[int], run: Callable[[], None]) -> NoReturn:
    status = 1
    try:
        die_with_parent()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.putenv("TMPDIR", temporary)  # noqa: TID251  this is the child process, and native code reads it
        tempfile.tempdir = temporary
        run()
        status = 0
    except BaseException:  # noqa: BLE001  the server's loop must not go on in this process
        traceback.print_exc()
    finally:
        os._exit(status)


def _close(file: IO[str]) -> None:
    with suppress(BrokenPipeError):  # of what a dead process did not read
        file.close()

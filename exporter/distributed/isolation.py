"""Run code in a forked child, so that a crash, or a kill by the kernel, ends only the child."""

import ctypes
import gc
import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from typing import Generic, TypeVar

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_CREATED = 50_000  # objects, between two searches for cyclic garbage; Python's default is 700


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, in whatever way.

    To the kernel the parent is the thread that started this process: that thread must live as long.
    """
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def name_process(name: str) -> None:
    """Set the name that `ps -o comm` and `top` show, at most 15 bytes: forks look alike otherwise."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode())


def collect_rarely() -> None:
    """Let this process and its forks look for cyclic garbage less often.

    Imports, tracing and compiling create millions of objects that live on; to look through them for cycles
    takes a tenth of an export's time and frees next to nothing.
    """
    gc.set_threshold(_CREATED, *gc.get_threshold()[1:])


class ForkedChild(Generic[T]):
    """A running child of this process, started by `start_child`."""

    def __init__(self, process: ForkProcess, receiver: Connection, on_death: Callable[[str], T]) -> None:
        self._process = process
        self._receiver = receiver
        self._on_death = on_death

    def result(self) -> T:
        """Wait for the child to end; return what it produced, or what `on_death` returns if it died."""
        try:
            value: T = self._receiver.recv()
        except (EOFError, OSError):  # it died before or while it sent its result
            self._process.join()
            return self._on_death(_describe_exit(self._process.exitcode))
        finally:
            self._receiver.close()
        self._process.join()
        return value


def start_child(produce: Callable[[], T], *, on_death: Callable[[str], T]) -> ForkedChild[T]:
    """Call `produce` in a forked child; if the child dies, the result is what `on_death` returns.

    The child is forked, so that imports are not repeated; therefore this process must not have started
    threads or used CUDA. `on_death` takes a description of how the child ended, such as "was killed by
    SIGKILL".
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_produce_and_send, args=(produce, sender))
    child.start()
    sender.close()  # the child holds the only writing end: its death ends the stream
    return ForkedChild(child, receiver, on_death)


def run_isolated(produce: Callable[[], T], *, on_death: Callable[[str], T]) -> T:
    """Call `produce` in a forked child, wait, and return its result; see `start_child`."""
    return start_child(produce, on_death=on_death).result()


def _produce_and_send(produce: Callable[[], T], sender: Connection) -> None:
    die_with_parent()
    sender.send(produce())


def _describe_exit(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"

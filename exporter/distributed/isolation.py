"""Work in a forked child: code that crashes, or that the kernel kills, takes only the child with it."""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

T = TypeVar("T")


def isolated(produce: Callable[[], T], *, died: Callable[[str], T]) -> T:
    """What `produce` returns in a child of this process; where the child dies, what `died` makes of it.

    Forked and not started anew, so that what is imported is not imported again; therefore this process
    must not have run anything in threads, nor used CUDA. `died` is told how the child ended.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_produce, args=(produce, sender))
    child.start()
    sender.close()  # the child holds the other end: its death is the end of the stream
    try:
        value: T = receiver.recv()
    except EOFError:
        child.join()
        return died(_how(child.exitcode))
    finally:
        receiver.close()
    child.join()
    return value


def _produce(produce: Callable[[], T], sender: Connection) -> None:
    sender.send(produce())


def _how(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with status {exit_code}"

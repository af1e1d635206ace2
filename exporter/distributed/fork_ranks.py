"""Run ranks as forks of one process, which has imported the modules that all of them need.

The process must not have started threads or used a GPU before. Every line that a rank writes to stderr is
forwarded with the rank's number in front, `[rank1]: `. When one rank dies, the others are ended.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from threading import Thread
from typing import NoReturn

from exporter.distributed.isolation import name_process
from exporter.distributed.ranks import Ranks

_GRACE_S = 2.0  # between asking the other ranks to end and killing them
_LAST_LINES_S = 2.0  # wait for last lines; processes that a rank started may hold the pipe open for ever
_TICK_S = 0.05


def run_ranks(run: Callable[[Ranks], None], count: int, *, rendezvous: str, here: range | None = None) -> int:
    """Fork the ranks, forward their lines, and wait for all; return 1 if one died or failed, else 0.

    All `count` ranks are forked, or only those that run `here`, on this host. They gather their results at
    `rendezvous`, a URI as in `Ranks`.
    """
    ranks: dict[int, int] = {}
    lines: dict[int, int] = {}
    # Where all ranks are here, they need not meet: each but the first has a pipe to the first.
    pipes = [Pipe(duplex=False) for _ in range(1, count)] if here in (None, range(count)) else []
    for rank in here or range(count):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            for each in (reader, *lines.values()):  # a write fails only once every reading end is closed
                os.close(each)
            name_process(f"rank {rank}")
            own = [pipes[rank - 1][1]] if rank and pipes else [reading for reading, _ in pipes]
            _run_rank(partial(run, Ranks(rank=rank, size=count, rendezvous=rendezvous, pipes=own)), writer)
        os.close(writer)
        ranks[pid] = rank
        lines[rank] = reader
    for pipe in pipes:
        for end in pipe:
            end.close()
    # Started after the forks: threads do not survive a fork, and could leave a held lock in it.
    readers = [Thread(target=_forward_lines, args=(each, rank), daemon=True) for rank, each in lines.items()]
    for reader_thread in readers:
        reader_thread.start()
    status = _wait_for_ranks(ranks)
    for reader_thread in readers:
        reader_thread.join(_LAST_LINES_S)
    return status


def _run_rank(rank: Callable[[], None], output: int) -> NoReturn:
    """Run a rank in this forked process, and end the process."""
    status = 1
    try:
        os.dup2(output, sys.stderr.fileno())
        os.close(output)
        rank()
        status = 0
    except BaseException:  # noqa: BLE001  # the code that forked must not go on in this process
        traceback.print_exc()
    finally:
        exit_process(status)


def _forward_lines(lines: int, rank: int) -> None:
    with os.fdopen(lines, "rb") as file:
        for line in file:
            with suppress(
                OSError
            ):  # on a full disk lines are lost, but a rank whose lines nobody reads would block
                os.write(sys.stderr.fileno(), b"[rank%d]: %s\n" % (rank, line.rstrip(b"\n")))


def _wait_for_ranks(ranks: dict[int, int]) -> int:
    """Wait until all ranks have ended; end the others once one has failed, or once rank 0 is done."""
    while ranks:
        pid, status = os.wait()
        rank, code = ranks.pop(pid, None), os.waitstatus_to_exitcode(status)
        if rank is not None and code != 0:
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
            sys.stderr.write(f"rank {rank} {how}; the other ranks are ended\n")
            sys.stderr.flush()
            _end_ranks(ranks)
            return 1
        if rank == 0:
            # Rank 0 has the others' results by now, or failed before: then they would wait for it for hours.
            _end_ranks(ranks, patience_s=_GRACE_S)
            return 0
    return 0


def _end_ranks(ranks: Mapping[int, int], *, patience_s: float = 0.0) -> None:
    """Wait `patience_s` for the ranks to end, then send SIGTERM, then SIGKILL."""
    left = _wait_for_exits(set(ranks), patience_s)
    for pid in left:
        os.kill(pid, signal.SIGTERM)
    for pid in _wait_for_exits(left, _GRACE_S):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _wait_for_exits(pids: set[int], seconds: float) -> set[int]:
    """Wait at most `seconds` for the processes to end; return those that still run."""
    deadline = time.monotonic() + seconds
    while left := {pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]}:
        if time.monotonic() > deadline:
            break
        pids = left
        time.sleep(_TICK_S)
    return left


def exit_process(status: int) -> NoReturn:
    """End this process without the interpreter's shutdown, which takes a second with torch loaded."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

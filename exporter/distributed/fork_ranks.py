"""Ranks as forks of one process, which has imported what all of them need.

Nothing may have run in threads before, and no GPU may have been used. Every line that a rank writes is passed
on behind the rank's number, `[rank1]: `. When one dies, the others are ended.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import NoReturn

from exporter.distributed.isolation import name_process
from exporter.distributed.ranks import Ranks

_GRACE_S = 2.0  # between asking the other ranks to end and killing them
_LAST_LINES_S = 2.0  # what a rank has started may hold its end of the pipe for ever
_TICK_S = 0.05


def run_ranks(run: Callable[[Ranks], None], count: int, *, meeting: str, here: range | None = None) -> int:
    """Fork the ranks, pass their lines on, and wait for all; 1 when one died or failed, else 0.

    All `count` of them, or those that are to be `here`.
    """
    ranks: dict[int, int] = {}
    lines: dict[int, int] = {}
    for rank in here or range(count):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            for each in (reader, *lines.values()):  # else nobody who writes would learn that nobody reads
                os.close(each)
            name_process(f"rank {rank}")
            _run_rank(partial(run, Ranks(rank=rank, size=count, meeting=meeting)), writer)
        os.close(writer)
        ranks[pid] = rank
        lines[rank] = reader
    # Not before: threads would not survive the forks, and could leave a lock behind in them.
    readers = [Thread(target=_forward_lines, args=(each, rank), daemon=True) for rank, each in lines.items()]
    for reading in readers:
        reading.start()
    status = _wait_for_ranks(ranks)
    for reading in readers:
        reading.join(_LAST_LINES_S)
    return status


def _run_rank(rank: Callable[[], None], output: int) -> NoReturn:
    """Become a rank, to its end."""
    status = 1
    try:
        os.dup2(output, sys.stderr.fileno())
        os.close(output)
        rank()
        status = 0
    except BaseException:  # noqa: BLE001  # nothing may go on above the fork
        traceback.print_exc()
    finally:
        exit_process(status)


def _forward_lines(lines: int, rank: int) -> None:
    with os.fdopen(lines, "rb") as file:
        for line in file:
            with suppress(OSError):  # a full disk loses lines; a rank that nobody reads would stand still
                os.write(sys.stderr.fileno(), b"[rank%d]: %s\n" % (rank, line.rstrip(b"\n")))


def _wait_for_ranks(ranks: dict[int, int]) -> int:
    """Wait until all have ended; once one has failed, or the first is done, the others wait for nobody."""
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
            # It has met the others by now, or has failed before it could: then they would wait for hours.
            _end_ranks(ranks, patience_s=_GRACE_S)
            return 0
    return 0


def _end_ranks(ranks: Mapping[int, int], *, patience_s: float = 0.0) -> None:
    """Let them end by themselves for a while, ask them to, and then kill them."""
    left = _wait_for_exits(set(ranks), patience_s)
    for pid in left:
        os.kill(pid, signal.SIGTERM)
    for pid in _wait_for_exits(left, _GRACE_S):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _wait_for_exits(pids: set[int], seconds: float) -> set[int]:
    """Those that still run when the time is over, or none."""
    deadline = time.monotonic() + seconds
    while pids and time.monotonic() < deadline:
        pids = {pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]}
        time.sleep(_TICK_S)
    return pids


def exit_process(status: int) -> NoReturn:
    """End this process, and spare it the interpreter's end: with torch in it that takes a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

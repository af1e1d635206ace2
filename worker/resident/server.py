"""The resident process of a worker: it has imported what attempts need, and forks one for each order.

    python -m worker.resident.server SOCKET [all]

With `all` it has also imported what only some attempts need, because it is there for many of them.
Imports take longer than the rest of a warm export. This process has no credentials, runs nothing of a job,
and has one thread, as what is forked needs. An attempt that it forks is confined like one that is started by
itself: it has a guard, limits, and an environment that only the attempt reads. The attempt ends with its
worker or its guard, and not with this process.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import torch

from exporter.code_cache.fingerprint import prepare_keys
from exporter.distributed.fork_ranks import exit_process, run_ranks
from exporter.distributed.fork_server import ForkServer, fork_server
from exporter.distributed.isolation import collect_rarely, die_with_parent, name_process
from exporter.distributed.ranks import Ranks
from exporter.verify.runner_server import run_program
from processes.guard import guard
from processes.privacy import keep_private
from worker.attempt.rank import run_rank
from worker.resident.order import EVERYTHING, FILES, READY, Order

_MESSAGE_BYTES = 8192
_GUARDED = 0  # the descriptor that a guard watches, and answers on


def main() -> None:
    """Serve the socket of the number that the command line gives, until the worker is gone."""
    keep_private()
    name_process("resident")
    collect_rarely()
    if EVERYTHING in sys.argv[2:]:
        importlib.import_module("worker.resident.preload")
    prepare_keys()
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        serve(orders)
    _reap()
    exit_process(0)


def serve(orders: socket.socket) -> None:
    """Fork a guard and an attempt for each order, until the other end of the socket is closed."""
    _require_forkable()
    gc.collect()
    gc.freeze()  # collections of a fork leave what is there alone: to mark it is to copy all its pages
    orders.send(READY)
    signal.signal(signal.SIGCHLD, lambda *_: _reap())  # who ordered a guard hears its status
    while True:
        message, files, _, _ = socket.recv_fds(orders, _MESSAGE_BYTES, FILES)
        if not message:
            return
        _require_forkable()
        if os.fork() == 0:
            orders.close()
            _become_guard(Order.model_validate_json(message), files)
        for each in files:
            os.close(each)


def _reap() -> None:
    """Reap guards that have ended; their processor time is then part of this process's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _require_forkable() -> None:
    """Exit if forks of this process could hang or fail: the worker then starts attempts another way."""
    if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        sys.exit(f"the resident process has {threads} threads, and cannot fork attempts")
    if torch.cuda.is_initialized():
        sys.exit("the resident process has used a GPU, and cannot fork attempts")


def _become_guard(order: Order, files: Sequence[int]) -> NoReturn:
    """Guard the attempt in this forked process, and end it with the attempt's status."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        name_process("guard")
        channel, log, variables = files
        for source, target in ((channel, _GUARDED), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(channel)
        os.close(log)
        os.write(_GUARDED, b"%d\n" % os.getpid())  # fails if nobody waits for it any more

        def start() -> int:
            if (child := os.fork()) == 0:
                _become_attempt(order, variables)
            os.close(variables)
            return child

        status = guard(start, order.grace_s, order.limits)
        os.write(_GUARDED, b"%d\n" % status)
    except BrokenPipeError:
        pass  # the worker is gone, or has given up waiting
    except BaseException:  # noqa: BLE001  the loop must not go on in this process
        traceback.print_exc()
    finally:
        exit_process(status)


def _become_attempt(order: Order, variables: int) -> NoReturn:
    """Run the ranks of the attempt in this forked process, and end it."""
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        die_with_parent()
        name_process("attempt")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        torch.set_num_threads(order.threads)  # it starts none, and forks keep the number
        with ForkServer(partial(fork_server, run_program, closes=[variables])) as runners:
            _take_environment(variables)  # after the fork: processes that run packages have no credentials
            status = _run_ranks(order, runners)
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  the guard's code must not go on in this process
        traceback.print_exc()
    finally:
        exit_process(status)


def _take_environment(variables: int) -> None:
    with os.fdopen(variables) as given:
        environment = json.load(given)
    own = os.environ  # noqa: TID251  the attempt's variables replace those of the resident process
    own.clear()
    own.update(environment)
    tempfile.tempdir = None  # found again, in the attempt's environment
    importlib.invalidate_caches()  # families may have been installed since this process began


def _run_ranks(order: Order, runners: ForkServer) -> int:
    """Run all ranks; return the exit status of the attempt."""
    if order.ranks == 1:
        run_rank(order.workspace, Ranks(), runners=runners)
        return 0
    meeting = (order.workspace / "meeting").absolute().as_uri()
    return run_ranks(partial(run_rank, order.workspace, runners=runners), order.ranks, rendezvous=meeting)


if __name__ == "__main__":
    main()

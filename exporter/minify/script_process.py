"""The process that runs scripts, each in a fork of its own, so that torch is imported only once.

`exporter.minify.script_runner` starts it. It reads JSON requests from stdin, one per line, and writes one
JSON line for each to stdout. It computes nothing before a fork, as threads of a library would not survive the
fork.
"""

import importlib
import os
import runpy
import signal
import sys
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch._inductor  # noqa: F401, TID251  imported, not used: once for all scripts
from pydantic import BaseModel

from exporter.aoti.inductor.headers import header_folder, keep_headers


class ScriptRequest(BaseModel):
    """Request to run a script up to a step, for at most `limit_s` seconds."""

    script: Path
    log: Path
    last_step: str
    limit_s: float


class ScriptStatus(BaseModel):
    """The end of a script's process: exit status, negative signal number, or None at the time limit."""

    status: int | None


def main() -> None:
    for library in sys.argv[1:]:
        importlib.import_module(library)
    _answer(0)
    for line in sys.stdin:
        request = ScriptRequest.model_validate_json(line)
        child = os.fork()
        if child == 0:
            _run(request)
        _answer(_wait(child, request.limit_s))


def _answer(status: int | None) -> None:
    sys.stdout.write(ScriptStatus(status=status).model_dump_json() + "\n")
    sys.stdout.flush()


def _run(request: ScriptRequest) -> None:
    os.setsid()  # so that compilers which it starts can be killed with it
    log = os.open(request.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [str(request.script), request.last_step]
    try:
        with _kept_headers():
            runpy.run_path(str(request.script), run_name="__main__")
    except SystemExit:
        os._exit(0)
    except BaseException:  # noqa: BLE001  any exception ends this process
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _kept_headers() -> AbstractContextManager[None]:
    """Return what lets a script use compiled headers of the machine; nothing where there is no compiler."""
    try:
        return keep_headers(header_folder())
    except Exception:  # noqa: BLE001  of torch's own kinds; the script will fail in its step, and say so
        return nullcontext()


def _wait(child: int, limit_s: float) -> int | None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main()

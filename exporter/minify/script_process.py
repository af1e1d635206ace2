"""The process that tries scripts, each in a fork of its own: what it imports is imported once.

Started by `exporter.minify.script_runner`. Reads one JSON request per line on stdin, answers each with one.
Nothing is computed here before a fork, so that no thread of a library is lost in it.
"""

import importlib
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path

import torch._inductor  # noqa: F401, TID251  paid once, for every script that is tried
from pydantic import BaseModel


class ScriptRequest(BaseModel):
    """A script to run up to a step, and for how long at most."""

    script: Path
    log: Path
    last_step: str
    limit_s: float


class ScriptStatus(BaseModel):
    """How the script's process ended: its status, a signal's negative number, or None past its limit."""

    status: int | None


def main() -> None:
    for library in sys.argv[1:]:
        importlib.import_module(library)
    _answer(0)
    for line in sys.stdin:
        trial = ScriptRequest.model_validate_json(line)
        child = os.fork()
        if child == 0:
            _run(trial)
        _answer(_wait(child, trial.limit_s))


def _answer(status: int | None) -> None:
    sys.stdout.write(ScriptStatus(status=status).model_dump_json() + "\n")
    sys.stdout.flush()


def _run(trial: ScriptRequest) -> None:
    os.setsid()  # so that compilers it starts end with it
    log = os.open(trial.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [str(trial.script), trial.last_step]
    try:
        runpy.run_path(str(trial.script), run_name="__main__")
    except SystemExit:
        os._exit(0)
    except BaseException:  # noqa: BLE001  it ends this process, whatever it is
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


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

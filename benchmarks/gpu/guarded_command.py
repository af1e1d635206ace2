"""A command in a process of its own, which ends with all that it started when its time is up.

A hanging kernel, an illegal access or too little memory then costs one part of a benchmark, not the others.
"""

import subprocess
import sys
from collections.abc import Sequence
from typing import IO

_GRACE_S = 20  # to write down what there is


def run_guarded(command: Sequence[str], *, limit_s: float, log: IO[str] | None = None) -> str:
    """How the command ended, in words; "" if well. What it says goes to `log`, else where ours does."""
    guarded = [sys.executable, "-m", "processes.guard", str(_GRACE_S), "", *command]
    process = subprocess.Popen(guarded, stdin=subprocess.PIPE, stdout=log, stderr=log and subprocess.STDOUT)
    try:
        status = process.wait(timeout=limit_s)
    except subprocess.TimeoutExpired:
        return f"its process was ended, as it took more than {limit_s:.0f} s"
    finally:  # a Ctrl-C as well
        _end(process)
    return f"its process ended with status {status}" if status else ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    """The guard ends the command's family; and if it does not, the kernel ends both."""
    assert process.stdin is not None
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=2 * _GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    process.stdin.close()

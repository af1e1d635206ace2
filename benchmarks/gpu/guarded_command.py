"""Run a command under a guard that ends it, and everything it started, when its time is up.

A hanging kernel, an illegal access or too little memory then costs one part of a benchmark, not the others.
"""

import subprocess
import sys
from collections.abc import Sequence
from typing import IO

_GRACE_S = 20  # for writing down partial results


def run_guarded(command: Sequence[str], *, limit_s: float, log: IO[str] | None = None) -> str:
    """Run the command; return how it failed, or "" if it succeeded. Output goes to `log`, else to our own."""
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
    """End the command's process family through the guard; if the guard hangs, the kernel ends both."""
    assert process.stdin is not None
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=2 * _GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    process.stdin.close()

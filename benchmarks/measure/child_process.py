"""A function in a forked process of its own: how it ended, its seconds of CPU, and the memory it took."""

import multiprocessing
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_SECONDS = 300.0  # for one process
_NO_ANSWER = "no answer"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """Report of a process, with the seconds and the memory that it took."""

    text: str = _NO_ANSWER
    cpu_seconds: float = _SECONDS
    grown: int = 0  # bytes of resident memory at its peak beyond what it had before

    @property
    def is_answer(self) -> bool:
        """Return whether the process reported anything before its time was over."""
        return self.text != _NO_ANSWER


def run_in_child(work: Callable[[], str]) -> Ending:
    """Run `work` in a fork of this process and return its text, or no answer if it dies or takes too long."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def report() -> None:
        before, begun = read_memory(os.getpid(), "VmRSS"), time.process_time()
        forget_peak(os.getpid())
        text = work()
        seconds = time.process_time() - begun
        grown = read_memory(os.getpid(), "VmHWM") - before
        sender.send(Ending(text=text, cpu_seconds=seconds, grown=grown))

    process = context.Process(target=report, daemon=True)
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(_SECONDS) else Ending()
    except EOFError:  # it died
        return Ending()
    finally:
        process.kill()
        process.join()


def read_memory(pid: int, kind: str) -> int:
    """Return a process's resident memory in bytes: VmRSS, now, or VmHWM, the most it had; 0 once it ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(f"{kind}:")), 0)


def forget_peak(pid: int) -> None:
    """Let VmHWM begin again at VmRSS."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")

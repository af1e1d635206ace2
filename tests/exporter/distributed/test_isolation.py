"""A child's result comes back; its death is reported, and does not end the parent."""

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.distributed.isolation import run_isolated, start_child


def test_a_result_comes_back() -> None:
    assert run_isolated(lambda: {"pid": os.getpid()}, on_death=lambda how: {"pid": 0})["pid"] not in (
        0,
        os.getpid(),
    )


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "was killed by SIGSEGV"),
        (lambda: sys.exit(3), "ended with status 3"),
    ],
)
def test_a_death_is_reported(end: Callable[[], object], how: str) -> None:
    assert callable(end)

    def produce() -> str:
        faulthandler.disable()  # pytest's would write the child's stack between the dots of the tests
        return str(end())

    assert run_isolated(produce, on_death=lambda told: told) == how


def test_a_death_while_sending_the_result_is_reported(tmp_path: Path) -> None:
    def produce() -> str:
        (tmp_path / "pid").write_text(str(os.getpid()))
        return "x" * (8 << 20)  # more than the pipe holds: it stands until somebody reads

    child = start_child(produce, on_death=lambda how: how)
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    time.sleep(0.5)
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert child.result() == "was killed by SIGKILL"

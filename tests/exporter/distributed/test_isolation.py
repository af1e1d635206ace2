"""A child's result comes back; its death is told and not shared."""

import os
import signal
import sys

import pytest

from exporter.distributed.isolation import isolated


def test_a_result_comes_back() -> None:
    assert isolated(lambda: {"pid": os.getpid()}, died=lambda how: {"pid": 0})["pid"] not in (0, os.getpid())


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "was killed by SIGSEGV"),
        (lambda: sys.exit(3), "ended with status 3"),
    ],
)
def test_a_death_is_told(end: object, how: str) -> None:
    assert callable(end)
    assert isolated(lambda: str(end()), died=lambda told: told) == how

"""A process's largest memory, as the system keeps it."""

import os
import subprocess
import sys

from exporter.items.peak_memory import peak_bytes, reset_peak

HELD = 200 << 20


def test_a_peak_outlasts_the_memory_until_it_is_forgotten() -> None:
    reset_peak()
    before = peak_bytes()
    held = bytearray(HELD)
    held[:: 1 << 10] = b"1" * len(held[:: 1 << 10])
    del held
    assert peak_bytes() - before > 0.9 * HELD
    reset_peak()
    assert peak_bytes() - before < 0.5 * HELD


def test_another_process_has_a_peak_of_its_own() -> None:
    waiting = [sys.executable, "-c", "print(flush=True); input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert 1 << 20 < peak_bytes(other.pid) < peak_bytes(os.getpid())
        other.communicate(b"\n")

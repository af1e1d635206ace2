"""Programs started beside a worker share its environment, and hide it from attempts."""

import subprocess
import sys

import pytest

from processes.settings import inherited_environment

START = """
import ctypes
from worker import {program}
try:
    {program}.main()
except SystemExit:
    print("readable" if ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) else "private")  # PR_GET_DUMPABLE
"""


@pytest.mark.parametrize("program", ["alive", "drain"])
def test_the_programs_beside_a_worker_are_private_before_all_else(program: str) -> None:
    environment = inherited_environment({"SLIPWAY_HEARTBEAT_INTERVAL": "never"})  # they end over it
    command = [sys.executable, "-c", START.format(program=program)]
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.strip() == "private"

"""A container's first process, with real processes beneath it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT
from tests.signals import HEARS_HANGUP

NOBODY = 65534
HELD = {"PYTHONPATH": str(ROOT), "PATH": os.defpath, "HELD": "planted"}
AS_NOBODY = f"""
import ctypes, os, sys
from worker.init import main
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # what changes its user is private by that alone
sys.exit(main(sys.argv[1:]))
"""


def started(*command: str, how: tuple[str, ...] = ("-m", "worker.init")) -> subprocess.Popen[bytes]:
    init = [*HEARS_HANGUP, sys.executable, *how, *command]
    return subprocess.Popen(init, env=HELD, cwd="/", stdout=subprocess.PIPE)


def ended(*command: str) -> int:
    with started(*command) as init:
        return init.wait(timeout=30)


@pytest.mark.parametrize(
    ("command", "status"),
    [(("true",), 0), (("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -9 $$"), 137), (("/no/program",), 127)],
)
def test_it_ends_as_its_command_does(command: tuple[str, ...], status: int) -> None:
    assert ended(*command) == status


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1]
)
def test_a_signal_reaches_its_command(number: signal.Signals) -> None:
    trap = f"trap 'echo caught; exit 3' {number.name.removeprefix('SIG')}"
    caught = f"{trap}; echo ready; while :; do sleep 0.05; done"
    with started("sh", "-c", caught) as init:
        assert init.stdout is not None and init.stdout.readline() == b"ready\n"
        init.send_signal(number)
        assert (init.stdout.read(), init.wait(timeout=30)) == (b"caught\n", 3)


def test_its_command_hears_every_signal() -> None:
    """A blocked signal would stay blocked in everything that the command starts."""
    with started("grep", "SigBlk", "/proc/self/status") as init:
        assert init.stdout is not None and int(init.stdout.read().split()[1], 16) == 0


def test_orphans_that_ended_are_collected() -> None:
    with started("sh", "-c", "(sleep 0.1 & echo $!); exec sleep 60") as init:
        assert init.stdout is not None
        orphan = Path(f"/proc/{int(init.stdout.readline())}")
        deadline = time.monotonic() + 30
        while orphan.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        init.terminate()
        assert not orphan.exists(), (orphan / "status").read_text()
    assert init.returncode == 128 + signal.SIGTERM


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, as root could read everything")
@pytest.mark.parametrize("file", ["environ", "mem", "maps"])
def test_no_other_process_of_its_user_reads_what_it_holds(file: str) -> None:
    with started("sh", "-c", "echo ready; exec sleep 60", how=("-c", AS_NOBODY)) as init:
        assert init.stdout is not None and init.stdout.readline() == b"ready\n"
        try:
            command = ["head", "-c", "1", f"/proc/{init.pid}/{file}"]
            read = subprocess.run(command, user=NOBODY, group=NOBODY, capture_output=True, check=False)
        finally:
            init.terminate()
    assert b"Permission denied" in read.stderr and not read.stdout


@pytest.mark.parametrize("program", ["alive", "drain"])
def test_what_an_engine_runs_beside_it_hides_first(program: str) -> None:
    """A drain lasts as long as an attempt; the invalid settings end it at once here."""
    running = (
        f"import ctypes, contextlib\nfrom worker.{program} import main\n"
        "with contextlib.suppress(SystemExit): main()\nprint(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    )
    command, told = [sys.executable, "-c", running], {**HELD, "SLIPWAY_HEARTBEAT_INTERVAL": "never"}
    ran = subprocess.run(command, env=told, capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"

"""Everything a guarded process has started ends with it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from processes.guarded_process import GuardedProcess

GRACE = timedelta(seconds=0.5)
SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
# Starts a grandchild in a session of its own, writes both numbers, and goes on.
FAMILY = f"""
import os, pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}], start_new_session=True)
part = pathlib.Path(sys.argv[1] + ".part")
part.write_text(f"{{os.getpid()}} {{child.pid}}")
part.rename(sys.argv[1])
"""
FAMILY_THAT_STAYS = FAMILY + SLEEPER

Start = Callable[..., GuardedProcess]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def start(program: str, *arguments: str) -> GuardedProcess:
        command = [sys.executable, "-c", program, *arguments]
        return GuardedProcess.start(command, log=tmp_path / "log", grace=GRACE, environment={"GIVEN": "yes"})

    return start


def pids_in(path: Path) -> list[int]:
    until(path.exists)
    return [int(pid) for pid in path.read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(("program", "status"), [("", 0), ("exit(3)", 3), ("import os; os.abort()", 134)])
def test_its_status_is_the_commands(start: Start, program: str, status: int) -> None:
    process = start(program)
    assert process.wait(timedelta(seconds=10)) == status
    process.stop()


# The guard starts its command so slowly that the command has ended by then.
STARTS_SLOWLY = """
import subprocess, sys, time
from processes.guard import main

class SlowPopen(subprocess.Popen):
    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        time.sleep(0.5)

subprocess.Popen = SlowPopen
sys.exit(main(["1", "", "sh", "-c", "exit 3"]))
"""


def test_the_status_of_a_command_that_ends_at_once_is_not_lost() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_SLOWLY], stdin=subprocess.PIPE) as guard:
        try:
            assert guard.wait(30) == 3
        finally:
            guard.kill()


def test_it_writes_a_log_and_gets_an_environment(start: Start) -> None:
    process = start("import os; print('one\\ntwo', os.environ['GIVEN'])")
    process.wait()
    process.stop()
    assert process.last_lines(1) == "two yes"


def test_a_command_that_does_not_exist_is_said(tmp_path: Path) -> None:
    process = GuardedProcess.start(["/no/such/program"], log=tmp_path / "log", grace=GRACE)
    assert process.wait() == 127
    assert "/no/such/program" in process.last_lines(1)
    process.stop()


def test_stop_ends_grandchildren_that_ignore_it(start: Start, tmp_path: Path) -> None:
    process = start(FAMILY_THAT_STAYS, str(tmp_path / "pids"))
    pids = pids_in(tmp_path / "pids")
    process.stop()
    assert [is_alive(pid) for pid in pids] == [False, False]


def test_a_command_that_ends_leaves_nobody_behind(start: Start, tmp_path: Path) -> None:
    process = start(FAMILY, str(tmp_path / "pids"))
    assert process.wait() == 0
    assert [is_alive(pid) for pid in pids_in(tmp_path / "pids")] == [False, False]
    process.stop()


def test_a_killed_parent_takes_all_with_it(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), FAMILY_THAT_STAYS])
    pids = pids_in(tmp_path / "pids")
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    until(lambda: not any(is_alive(pid) for pid in pids))


PARENT = """
import sys, time
from datetime import timedelta
from pathlib import Path
from processes.guarded_process import GuardedProcess
folder = Path(sys.argv[1])
command = [sys.executable, "-c", sys.argv[2], str(folder / "pids")]
process = GuardedProcess.start(command, log=folder / "log", grace=timedelta(seconds=0.2))
time.sleep(600)
"""


def test_a_wait_of_no_time_does_not_wait(start: Start) -> None:
    process = start("import time; time.sleep(600)")
    try:
        assert process.wait(timedelta()) is None
    finally:
        process.stop()

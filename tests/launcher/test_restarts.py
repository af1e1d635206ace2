"""A program that dies is started again, and no job is lost by it; one that keeps dying is given up."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from jobs.model import JobState
from launcher.errors import LaunchFailed
from launcher.program import Program
from slipway.client import Client, ServiceUnreachable
from tests.launcher.conftest import fake_ranks
from tests.launcher.test_end_to_end import SPEC, assert_all_ended, until_hanging
from tests.launcher.test_up import family, launched

START_S = 60.0


def kill(launcher: "subprocess.Popen[str]", word: str) -> None:
    """Kill the program of `launcher` of this name, and not the guard above it."""
    for process in family(launcher.pid):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):  # it has ended since
            continue
        if b"processes.guard" not in command and any(
            Path(os.fsdecode(each)).name.startswith(word) for each in command
        ):
            os.kill(int(process.name), signal.SIGKILL)
            return
    raise AssertionError(f"nothing runs {word}")


def until_state(client: Client, job_id: str, state: JobState) -> int:
    """Return the job's attempt once it is in this state, however long the API is away."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            if (job := client.get(job_id)).state is state:
                return job.attempt
        except ServiceUnreachable:
            pass
        time.sleep(0.2)
    raise AssertionError(f"not {state}")


def test_whichever_program_is_killed_is_started_again_and_no_job_is_lost(tmp_path: Path) -> None:
    with launched(tmp_path, fake_ranks("hang-once", tmp_path)) as (launcher, url):
        client = Client(url)
        job = client.submit(SPEC)
        until_hanging(tmp_path)
        kill(launcher, "redis-server")
        kill(launcher, "service")
        assert until_state(client, job.id, JobState.RUNNING) == 1  # the attempt outlives both
        kill(launcher, "worker")
        assert until_state(client, job.id, JobState.SUCCEEDED) == 2
        assert_all_ended(tmp_path)
        launcher.send_signal(signal.SIGINT)
        _, told = launcher.communicate(timeout=30)
        assert launcher.returncode == 0
        assert sorted(told.splitlines()) == sorted(
            [f"{name} ended with exit status 137, and is started again in 0 s" for name in NAMES]
            + ["stopped"]
        )


NAMES = ("Redis", "API", "worker")


@pytest.fixture
def broken(tmp_path: Path) -> Iterator[Program]:
    """A program that ends at once."""
    command = ["sh", "-c", "echo no memory left; exit 3"]
    program = Program("worker", command, log=tmp_path / "log", grace=timedelta(seconds=1))
    yield program
    program.stop()


def test_a_program_that_ends_again_and_again_is_named_with_its_last_lines(broken: Program) -> None:
    told = []
    for now in (0.0, 1.0, 1.5, 2.0, 3.0, 5.0, 6.0, 10.0, 11.0, 19.0):
        broken.process.wait()
        told.append(broken.restart_if_ended(now))
    broken.process.wait()
    with pytest.raises(LaunchFailed, match="^worker ended 6 times within .*ends:(\nno memory left)+$") as end:
        broken.restart_if_ended(20.0)
    assert end.value.where == str(broken.log)
    assert [each for each in told if each] == [
        f"worker ended with exit status 3, and is started again in {pause} s" for pause in (0, 1, 2, 4, 8)
    ]


def test_ends_that_lie_apart_are_not_counted_together(broken: Program) -> None:
    for number in range(10):
        broken.process.wait()
        told = broken.restart_if_ended(number * 30.0)
        assert told is not None and told.endswith(("in 0 s", "in 1 s", "in 2 s"))
        broken.restart_if_ended(number * 30.0 + 5)


def test_a_program_that_ends_while_others_start_is_not_started_again(broken: Program) -> None:
    broken.process.wait()
    with pytest.raises(LaunchFailed, match="worker ended with exit status 3; its log ends:\nno memory left"):
        broken.check()

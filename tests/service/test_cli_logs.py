"""`slipway logs` against a real socket."""

import json
import subprocess
import sys
import threading
import time

import pytest

from cli.main import INTERRUPTED, main
from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import LogPart
from jobs.lease.leases import claim
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.client.logs import new_lines
from service.dependencies import Backend
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_job, make_outcome

START = LogPart(lines=("torchrun",))
TRACE = LogPart(tower=TowerName.USER, stage=Stage.TRACE, lines=("guards", "done"))
COMPILE = LogPart(tower=TowerName.ITEM, stage=Stage.COMPILE, lines=("g++",))


@pytest.fixture
def job(store: MemoryJobStore) -> Job:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    return job


def printed(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the words of each printed line."""
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_lines_are_printed_by_tower_and_stage(
    url: str, backend: Backend, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.logs.append(job.id, [COMPILE, TRACE, START])
    assert main(["logs", job.id, "--url", url]) == 0
    assert printed(capsys) == [
        ["job", "torchrun"],
        ["user", "trace", "guards"],
        ["user", "trace", "done"],
        ["item", "compile", "g++"],
    ]


@pytest.mark.parametrize(
    ("options", "lines"),
    [(("--tower", "item"), ["g++"]), (("--stage", "trace"), ["guards", "done"]), (("--tower", "model"), [])],
)
def test_one_tower_or_stage_may_be_chosen(
    url: str,
    backend: Backend,
    job: Job,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, str],
    lines: list[str],
) -> None:
    backend.logs.append(job.id, [COMPILE, TRACE, START])
    assert main(["logs", job.id, *options, "--url", url]) == 0
    assert [words[-1] for words in printed(capsys)] == lines


def test_machines_get_a_line_of_json_per_tower_and_stage(
    url: str, backend: Backend, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.logs.append(job.id, [TRACE, START])
    assert main(["logs", job.id, "--json", "--url", url]) == 0
    start, trace = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert start == {"tower": None, "stage": None, "lines": ["torchrun"]}
    assert trace == {"tower": "user", "stage": "trace", "lines": ["guards", "done"]}


def test_control_characters_do_not_reach_the_terminal(
    url: str, backend: Backend, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    backend.logs.append(job.id, [LogPart(lines=("\x1b[2J\u202eevil\r",))])
    assert main(["logs", job.id, "--url", url]) == 0
    assert printed(capsys) == [["job", r"\x1b[2J\u202eevil\r"]]


def test_following_prints_each_line_once_until_the_job_has_ended(
    url: str, store: MemoryJobStore, backend: Backend, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        holding = claim(store, job.id, worker="w", length=MINUTE)
        assert holding is not None
        for part in (TRACE, COMPILE, TRACE):
            time.sleep(0.7)
            backend.logs.append(job.id, [part])
        holding.finish(make_outcome())

    backend.logs.append(job.id, [START])
    threading.Thread(target=work, daemon=True).start()
    assert main(["logs", job.id, "--follow", "--url", url]) == 0
    lines = printed(capsys)  # of two towers at a time where both have written since the last look
    assert lines[0] == ["job", "torchrun"] and lines.count(["item", "compile", "g++"]) == 1
    assert [words[-1] for words in lines if words[0] == "user"] == ["guards", "done"] * 2
    assert len(lines) == 6


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_log_that_was_read_is_no_failure_whatever_became_of_the_job(
    url: str, store: MemoryJobStore, backend: Backend, capsys: pytest.CaptureFixture[str], state: JobState
) -> None:
    ended = make_job(state)
    store.add(ended, CONFIG_TEXT)
    backend.logs.append(ended.id, [START])
    assert main(["logs", ended.id, "--follow", "--url", url]) == 0
    assert printed(capsys) == [["job", "torchrun"]]


@pytest.mark.parametrize("options", [(), ("--follow",)])
def test_an_unknown_job_is_one_line_with_its_code(
    url: str, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    assert main(["logs", "nonsense", *options, "--url", url]) == 1
    error = capsys.readouterr().err
    assert error.startswith("slipway: error [job_not_found]: ") and error.count("\n") == 1


def test_an_interrupt_stops_following_not_the_job(
    url: str,
    store: MemoryJobStore,
    job: Job,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.client.logs.time.sleep", interrupt)
    assert main(["logs", job.id, "--follow", "--url", url]) == INTERRUPTED
    assert f"job {job.id} goes on" in capsys.readouterr().err
    assert store.get(job.id).state is JobState.QUEUED


def test_a_reader_that_has_had_enough_is_no_error(url: str, backend: Backend, job: Job) -> None:
    backend.logs.append(job.id, [TRACE] * 400)
    logs = f"{sys.executable} -m cli.main logs {job.id} --follow --url {url}"
    piped = subprocess.run(["bash", "-c", f"{logs} | true"], capture_output=True, text=True, check=True)
    assert piped.stderr == ""


@pytest.mark.parametrize(
    ("before", "now", "new"),
    [
        ("", "ab", "ab"),
        ("ab", "ab", ""),
        ("ab", "abc", "c"),
        ("abc", "bcd", "d"),  # the service has dropped "a"
        ("aaa", "aab", "b"),
        ("abc", "xyz", "xyz"),
        ("abc", "", ""),
    ],
)
def test_lines_that_were_seen_are_told_from_new_ones(before: str, now: str, new: str) -> None:
    assert new_lines(tuple(before), tuple(now)) == tuple(new)

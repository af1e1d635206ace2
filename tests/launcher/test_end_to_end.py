"""HTTP to Redis to Celery to a child process and back, all real but the export itself."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.spec import ExportSpec
from jobs.model import JobState, TowerState
from launcher.up import Stack
from processes.guarded_process import GuardedProcess
from service.client.watch import watch
from slipway.client import Client, JobView, RequestRefused, ServiceUnreachable
from tests.launcher.conftest import fake_ranks
from tests.service.requests import export_request

MakeStack = Callable[[str], AbstractContextManager[Stack]]

SPEC = ExportSpec.model_validate(export_request())


def wait_for(client: Client, job: JobView, *states: JobState) -> JobView:
    deadline = time.monotonic() + 30
    while job.state not in states:
        assert time.monotonic() < deadline, job
        time.sleep(0.1)
        job = client.get_if_changed(job)
    return job


def until_hanging(folder: Path) -> None:
    deadline = time.monotonic() + 30
    while not (folder / "pids").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def another_worker(stack: Stack, behaviour: str) -> Iterator[None]:
    process = GuardedProcess.start(
        [sys.executable, "-m", "celery", "-A", "worker.app", "worker"],
        log=stack.data_dir / "another.log",
        grace=timedelta(seconds=10),
        environment={
            **fake_ranks(behaviour, stack.data_dir),
            "SLIPWAY_REDIS_URL": stack.redis_url,
            "SLIPWAY_WORK_DIR": str(stack.data_dir / "work"),
        },
    )
    try:
        yield
    finally:
        process.stop()


def worker_pid(client: Client) -> int:
    (worker,) = client.ready().alive or ()
    return worker.pid


def test_a_posted_job_runs_and_succeeds(stack: Stack) -> None:
    client, states = Client(stack.url), []
    ended = watch(client, client.submit(SPEC).id, lambda job: states.append(job.state))
    assert states[-1] is JobState.SUCCEEDED and JobState.RUNNING in states
    assert [tower.state for tower in ended.towers] == [TowerState.SUCCEEDED] * 2
    assert ended.manifest_uri == "/out/manifest.json"


def test_finished_jobs_are_listed(stack: Stack) -> None:
    client = Client(stack.url)
    job = watch(client, client.submit(SPEC).id, lambda job: None)
    assert job.id in [each.id for each in client.page(limit=5, state=JobState.SUCCEEDED).jobs]


def test_a_refusal_keeps_its_code_across_http(stack: Stack) -> None:
    with pytest.raises(RequestRefused) as refused:
        Client(stack.url).get("nonsense")
    assert refused.value.code == "job_not_found"


def test_a_service_that_is_not_there_is_said() -> None:
    with pytest.raises(ServiceUnreachable, match=r"http://127\.0\.0\.1:1 does not answer"):
        Client("http://127.0.0.1:1").ready()


def test_a_killed_workers_job_is_taken_up_by_another(make_stack: MakeStack) -> None:
    with make_stack("hang") as stack:
        client = Client(stack.url)
        job = client.submit(SPEC)
        until_hanging(stack.data_dir)
        os.kill(worker_pid(client), signal.SIGKILL)
        with another_worker(stack, "succeed"):
            ended = wait_for(client, job, JobState.SUCCEEDED, JobState.FAILED)
        assert (ended.state, ended.attempt) == (JobState.SUCCEEDED, 2)
        assert_all_ended(stack.data_dir)


def test_a_worker_told_to_end_hands_its_job_back(make_stack: MakeStack) -> None:
    with make_stack("hang") as stack:
        client = Client(stack.url)
        job = client.submit(SPEC)
        until_hanging(stack.data_dir)
        os.kill(worker_pid(client), signal.SIGTERM)
        assert wait_for(client, client.get(job.id), JobState.QUEUED).attempt == 1
        assert_all_ended(stack.data_dir)
        with another_worker(stack, "succeed"):
            assert wait_for(client, job, JobState.SUCCEEDED, JobState.FAILED).state is JobState.SUCCEEDED


def test_a_running_job_is_cancelled_within_five_seconds(make_stack: MakeStack) -> None:
    with make_stack("hang") as stack:
        client = Client(stack.url)
        job = client.submit(SPEC)
        until_hanging(stack.data_dir)
        asked = time.monotonic()
        assert client.cancel(job.id).cancel_requested
        wait_for(client, job, JobState.CANCELLED)
        assert time.monotonic() - asked < 5
        assert_all_ended(stack.data_dir)


def assert_all_ended(folder: Path) -> None:
    pids = (folder / "pids").read_text().split()
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []

"""One job on two workers: one leads, the other is called through the queue; what ends one ends both."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from exporter.artifact.read import read_manifest
from exporter.manifest import TowerEntry
from jobs.model import JobState
from launcher.up import Stack, running_stack
from processes.guarded_process import GuardedProcess
from service.client.watch import watch
from slipway.client import Client, JobView
from tests.e2e.conftest import sharded_spec
from tests.faults.programs import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

HERE = {"SLIPWAY_RDZV_HOST": "127.0.0.1", "SLIPWAY_SWEEP_INTERVAL": "1", "SLIPWAY_RETRY_PAUSE": "1"}


@contextmanager
def two_workers(folder: Path) -> Iterator[tuple[Stack, GuardedProcess]]:
    """A Slipway of two workers, and the second of them."""
    with running_stack(folder, environment=HERE) as stack:
        second = GuardedProcess.start(
            [sys.executable, "-m", "celery", "-A", "worker.app", "worker", "-n", "second@%h"],
            log=folder / "second.log",
            grace=timedelta(seconds=10),
            environment={
                **HERE,
                "SLIPWAY_REDIS_URL": stack.redis_url,
                "SLIPWAY_WORK_DIR": str(folder / "second"),
            },
        )
        try:
            wait_until("both workers are there", lambda: Client(stack.url).ready().workers == 2, 90)
            yield stack, second
        finally:
            second.stop()


def ranks_of(process: GuardedProcess) -> list[psutil.Process]:
    family = psutil.Process(process.guard.pid).children(recursive=True)
    return [each for each in family if each.name().startswith("rank ")]


def both_at_work(stack: Stack, second: GuardedProcess) -> bool:
    return bool(ranks_of(stack.programs["worker"].process) and ranks_of(second))


def tower_of(job: JobView) -> TowerEntry:
    assert job.manifest_uri is not None, job.failure
    [tower] = read_manifest(str(Path(job.manifest_uri).parent)).towers
    return tower


def test_two_workers_run_one_job_and_end_it_together(tmp_path: Path) -> None:
    with two_workers(tmp_path / "stack") as (stack, second):
        client = Client(stack.url)
        cancelled = client.submit(sharded_spec(tmp_path / "cancelled", nodes=2))
        wait_until("both workers have ranks", lambda: both_at_work(stack, second), 120)
        client.cancel(cancelled.id)
        assert watch(client, cancelled.id, lambda job: None).state is JobState.CANCELLED
        wait_until("the second is free again", lambda: not ranks_of(second), 15)
        job = client.submit(sharded_spec(tmp_path / "out", nodes=2))
        wait_until("both workers have ranks", lambda: both_at_work(stack, second), 120)
        ranks_of(second)[0].kill()
        job = watch(client, job.id, lambda job: None)
    assert (job.state, job.attempt) == (JobState.SUCCEEDED, 2), job.failure
    tables = tower_of(job).tables
    assert tables is not None and len(tables.shards) == 2
    assert not list((tmp_path / "cancelled").rglob("*.*"))


def test_a_worker_that_never_comes_is_an_error_after_the_limit(tmp_path: Path) -> None:
    impatient = {**HERE, "SLIPWAY_RDZV_TIME_LIMIT": "2"}
    with running_stack(tmp_path / "stack", environment=impatient) as stack:
        client = Client(stack.url)
        job = watch(client, client.submit(sharded_spec(tmp_path / "out", nodes=2)).id, lambda job: None)
    assert job.failure is not None
    assert (job.state, job.failure.code) == (JobState.FAILED, "host_missing")

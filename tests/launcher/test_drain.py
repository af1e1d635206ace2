"""Workers that stop, for scaling or an upgrade, finish their jobs first, and nothing is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import redis

from jobs.celery_queue import make_celery
from jobs.errors import StoreUnavailable
from jobs.ids import JobId
from jobs.model import JobState
from jobs.stores.redis_keys import JOB_KEY
from jobs.stores.redis_store import connect
from launcher.ports import free_port
from launcher.redis_server import redis_executable
from launcher.up import Stack, running_stack
from processes.settings import inherited_environment
from slipway.client import Client
from tests.launcher.conftest import fake_ranks
from tests.launcher.test_end_to_end import SPEC, another_worker, until_hanging, wait_for, worker_pid
from worker.drain import stop_listening

MakeStack = Callable[[str], AbstractContextManager[Stack]]
RECORDS = Path(__file__).parents[1] / "jobs" / "stores" / "records"


@contextmanager
def draining(redis_url: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Start `python -m worker.drain`, as a container's preStop hook does."""
    settings = {"SLIPWAY_REDIS_URL": redis_url, "SLIPWAY_HEARTBEAT_INTERVAL": "0.5"}
    command = [sys.executable, "-m", "worker.drain"]
    with subprocess.Popen(command, env=inherited_environment(settings)) as process:
        try:
            yield process
        finally:
            process.kill()


class StoppableRedis:
    """A Redis whose data outlives it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"

    def start(self) -> None:
        options = ["--bind", "127.0.0.1", "--port", str(self._port), "--dir", str(self._folder)]
        options += ["--appendonly", "yes", "--logfile", str(self._folder / "redis.log")]
        self._process = subprocess.Popen([redis_executable(), *options])
        client = redis.Redis.from_url(self.url, retry=None)
        deadline = time.monotonic() + 20
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                client.close()
                return

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None


@pytest.fixture
def stoppable(tmp_path: Path) -> Iterator[StoppableRedis]:
    server = StoppableRedis(tmp_path)
    server.start()
    yield server
    server.stop()


def until_logged(log: Path, words: str) -> None:
    deadline = time.monotonic() + 30
    while words not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_broker_that_is_away_is_said_in_our_words() -> None:
    app = make_celery("redis://127.0.0.1:1/0")
    app.conf.broker_connection_timeout = 0.1
    with pytest.raises(StoreUnavailable):
        stop_listening(app, "host", {"queue"})


def test_a_draining_worker_ends_its_job_and_takes_no_other(make_stack: MakeStack) -> None:
    with make_stack("hang-once") as stack:
        client = Client(stack.url)
        first = client.submit(SPEC)
        until_hanging(stack.data_dir)
        with draining(stack.redis_url) as drain:
            second = client.submit(SPEC.model_copy(update={"output_uri": "/second"}))
            time.sleep(3)
            assert drain.poll() is None  # the first job still runs
            client.cancel(first.id)
            assert drain.wait(timeout=20) == 0
            assert client.get(second.id).state is JobState.QUEUED


def test_draining_outlasts_a_redis_that_goes_and_comes_back(
    stoppable: StoppableRedis, tmp_path: Path
) -> None:
    """A job runs all the while, so silence must not be taken for its end."""
    settings = {**fake_ranks("hang-once", tmp_path), "SLIPWAY_LEASE": "60"}
    with running_stack(tmp_path, redis_url=stoppable.url, environment=settings) as stack:
        client = Client(stack.url)
        first = client.submit(SPEC)
        until_hanging(tmp_path)
        with draining(stack.redis_url) as drain:
            until_logged(stack.data_dir / "logs" / "worker.log", "Canceling queue slipway.exports ")
            stoppable.stop()
            time.sleep(1)
            assert drain.poll() is None
            stoppable.start()
            time.sleep(3)  # longer than an idle worker's drain takes
            assert drain.poll() is None
            second = client.submit(SPEC.model_copy(update={"output_uri": "/second"}))
            client.cancel(first.id)
            assert drain.wait(timeout=30) == 0
        assert wait_for(client, client.get(first.id), JobState.CANCELLED).attempt == 1
        assert client.get(second.id).state is JobState.QUEUED


def keep_first_version(client: redis.Redis, name: str) -> JobId:
    """Store a job as a program from before the upgrade left it."""
    kept = json.loads((RECORDS / f"version-1-{name}.json").read_text())
    for key, members in kept["indexes"].items():
        client.zadd(key, members)
    client.hset(JOB_KEY + kept["id"], mapping=kept["hash"])
    return JobId(kept["id"])


def test_a_rolling_upgrade_ends_no_attempt_and_loses_no_job(make_stack: MakeStack, tmp_path: Path) -> None:
    """The old worker finishes its job and stops; the new one takes the others, of both record versions."""
    with make_stack("as-asked") as stack:
        client, store = Client(stack.url), connect(stack.redis_url)
        slow = client.submit(SPEC.model_copy(update={"output_uri": str(tmp_path / "publish")}))
        wait_for(client, slow, JobState.RUNNING)
        with draining(stack.redis_url) as drain:
            old = [keep_first_version(store, name) for name in ("queued", "running")]
            new = [client.submit(SPEC.model_copy(update={"output_uri": f"/{name}"})) for name in "ab"]
            assert drain.wait(timeout=30) == 0
        assert {client.get(job.id).state for job in new} == {JobState.QUEUED}
        os.kill(worker_pid(client), signal.SIGTERM)
        with another_worker(stack, "as-asked"):
            for job_id in (*old, *(job.id for job in new)):
                assert wait_for(client, client.get(job_id), JobState.SUCCEEDED).state is JobState.SUCCEEDED
        assert (client.get(slow.id).state, client.get(slow.id).attempt) == (JobState.SUCCEEDED, 1)
        store.close()

"""Whatever lies in the queue, the worker lives on, and takes the next message that is one."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from jobs.celery_queue import QUEUE, make_celery
from jobs.stores.malformed import MALFORMED_KEY, MalformedData
from launcher.redis_server import running_redis
from processes.settings import inherited_environment
from tests.hostile.messages import MALFORMED, message
from worker.celery_transport import use_transport

_START_S, _TAKEN_S = 60.0, 10.0


class RunningWorker:
    """A worker on a Redis of its own."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.redis = redis.Redis.from_url(url, decode_responses=True)
        self.log = folder / "worker.log"
        settings = {"SLIPWAY_REDIS_URL": url, "SLIPWAY_WORK_DIR": str(folder / "work")}
        command = [sys.executable, "-m", "celery", "-A", "worker.app", "worker"]
        command += ["--without-gossip", "--without-mingle"]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=inherited_environment(settings)
            )

    def wait_until(self, what: str, done: Callable[[], bool], limit_s: float = _TAKEN_S) -> None:
        end = time.monotonic() + limit_s
        while not done():
            assert self.process.poll() is None, f"the worker ended:\n{self.log.read_text()[-3000:]}"
            assert time.monotonic() < end, f"{what} within {limit_s} s:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.02)

    def count_malformed(self) -> int:
        return int(self.redis.hget(MALFORMED_KEY, "message") or 0)

    def is_idle(self) -> bool:
        keys = [f"{QUEUE}:3", QUEUE, "unacked", "unacked_index"]
        return not any(self.redis.exists(key) for key in keys)

    def nudge(self) -> bool:
        """Send a good message, so that the worker uses all of its keys."""
        with contextlib.suppress(redis.ResponseError):
            self.redis.lpush(f"{QUEUE}:3", message())
        return True

    def take(self, *texts: str | bytes) -> None:
        """Let the worker take these messages, and then a good one, which tells that it still works."""
        taken = self.log.read_text().count("job_not_claimed")
        self.redis.lpush(f"{QUEUE}:3", *texts, message())
        self.wait_until(
            "takes the next message", lambda: self.log.read_text().count("job_not_claimed") > taken
        )
        self.wait_until("leaves nothing behind", self.is_idle)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWorker]:
    folder = tmp_path_factory.mktemp("worker")
    with running_redis(folder / "redis") as server:
        worker = RunningWorker(server.url, folder)
        try:
            worker.wait_until("ready", lambda: bool(worker.redis.exists("slipway:workers")), _START_S)
            yield worker
        finally:
            worker.process.terminate()
            worker.process.wait(30)


@pytest.mark.parametrize("text", MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_message_is_dropped_and_counted(worker: RunningWorker, text: str | bytes) -> None:
    before = worker.count_malformed()
    worker.take(text)
    assert worker.count_malformed() == before + 1


@pytest.mark.parametrize("text", ["not json", "[" * 100_000, "5", "[1]", "{}", message()])
def test_a_malformed_control_message_does_no_harm(worker: RunningWorker, text: str) -> None:
    assert worker.redis.publish("/0.celery.pidbox", text) == 1
    worker.take()


@pytest.mark.parametrize("key", [f"{QUEUE}:3", "unacked", "unacked_index"])
def test_a_key_that_is_no_queue_is_set_aside(worker: RunningWorker, key: str) -> None:
    worker.redis.set(key, "something else")
    worker.wait_until("no longer there", lambda: worker.nudge() and worker.redis.type(key) != "string")
    worker.take()
    assert worker.redis.get(f"slipway:set_aside:{key}") == "something else"


def test_a_malformed_message_that_was_taken_is_not_put_back(worker: RunningWorker) -> None:
    before, client = worker.count_malformed(), worker.redis
    app = make_celery(worker.url)
    use_transport(app, MalformedData(client))
    with app.connection() as connection:
        qos = connection.default_channel.qos
        for number, text in enumerate([*MALFORMED.values(), "[1, 2]", '{"a": 1}', '[{}, "", "x"]']):
            client.hset("unacked", str(number), text)
            client.zadd("unacked_index", {str(number): 0})
            qos.restore_by_tag(str(number))
    assert worker.is_idle()
    assert worker.count_malformed() == before + len(MALFORMED) + 3

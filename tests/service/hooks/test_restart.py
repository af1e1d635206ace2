"""A sender that is killed during a request loses no delivery, and none is sent twice at the same time."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from jobs.hooks.deliveries import DeliveryState
from jobs.hooks.redis_outbox import RedisOutbox
from jobs.lease.leases import update_job
from jobs.stores.redis_keys import OUTBOX_KEY
from jobs.stores.redis_store import RedisJobStore
from launcher.ports import free_port
from tests.architecture.tree import ROOT
from tests.jobs.factories import CONFIG_TEXT, make_job
from tests.jobs.hooks.factories import SECRET
from tests.service.hooks.receiver import WAIT_S, Receiver


@contextmanager
def _service(redis_url: str) -> Iterator[subprocess.Popen[bytes]]:
    port = str(free_port())
    settings = {
        "SLIPWAY_REDIS_URL": redis_url,
        "SLIPWAY_CALLBACK_SECRETS": SECRET,
        "SLIPWAY_CALLBACK_NETWORKS": "127.0.0.0/8, ::1/128",
        "SLIPWAY_CALLBACK_TIMEOUT": "1.5",
        "SLIPWAY_CALLBACK_POLL": "0.05",
        "PATH": os.defpath,
    }
    command = [sys.executable, "-m", "uvicorn", "--factory", "service.app:create_app", "--port", port]
    process = subprocess.Popen(command, env=settings, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        _wait_until_up(f"http://127.0.0.1:{port}/healthz")
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_until_up(url: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the service does not start")


def _cancelled_job(client: redis.Redis, receiver: Receiver) -> str:
    store = RedisJobStore(client)
    job = make_job().model_copy(update={"callback_url": receiver.url})
    store.add(job, CONFIG_TEXT)
    update_job(store, job.id, lambda job, now: job.request_cancel(now))
    return job.id


def test_a_sender_killed_in_the_middle_of_a_delivery_loses_nothing(
    redis_url: str, redis_client: redis.Redis, receiver: Receiver
) -> None:
    never = threading.Event()
    receiver.before = lambda: _hang(never)
    job_id = _cancelled_job(redis_client, receiver)
    with _service(redis_url) as service:
        receiver.wait_for(1)
        service.send_signal(signal.SIGKILL)
        service.wait()
    later = _cancelled_job(redis_client, receiver)  # nobody is there to send it
    assert redis_client.llen(OUTBOX_KEY) == 1
    receiver.before = lambda: None
    with _service(redis_url), _service(redis_url):
        receiver.wait_for(3)
        _wait_until_delivered(RedisOutbox(redis_client), job_id)
        _wait_until_delivered(RedisOutbox(redis_client), later)
    never.set()
    first, *others = [each.headers["webhook-id"] for each in receiver.received]
    assert sorted(others).count(first) == 1
    assert len(others) == 2


def _hang(never: threading.Event) -> None:
    never.wait(30)


def _wait_until_delivered(outbox: RedisOutbox, job_id: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        page = outbox.page(limit=10, job=job_id, state=DeliveryState.DELIVERED, before=None)
        if page.deliveries:
            return
        time.sleep(0.05)
    raise AssertionError(f"the event of job {job_id} was not delivered")

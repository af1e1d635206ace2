"""Health and readiness: what strangers are told, and that other requests cannot keep probes waiting."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from exporter.spec import Device
from jobs.control.control import JobControl
from jobs.fleet.roster import MemoryRoster, WorkerNotice
from jobs.ids import new_job_id
from jobs.model import JobState
from jobs.queue import MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.dependencies import Backend
from service.planning import plan
from service.settings import ServiceSettings
from tests.jobs.factories import NOW
from tests.service.conftest import serving

KEY = {"Authorization": "Bearer 0123456789abcdef"}
THREADS = 40  # of the pool that routes run in


@pytest.fixture
def guarded(backend: Backend, tmp_path: Path) -> Iterator[TestClient]:
    key = {"name": "a", "secret": "0123456789abcdef", "scopes": ["read"]}
    (tmp_path / "keys.json").write_text(json.dumps({"keys": [key]}))
    notice = WorkerNotice(
        id="w", host="h", pid=1, device=Device.CPU, versions={}, started_at=NOW, jobs=(new_job_id(),)
    )
    backend.roster.announce(notice, timedelta(minutes=1))
    with TestClient(create_app(ServiceSettings(api_keys_file=tmp_path / "keys.json"), backend)) as client:
        yield client


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}])
def test_a_stranger_is_told_no_more_than_a_probe_needs(guarded: TestClient, headers: dict[str, str]) -> None:
    assert guarded.get("/healthz", headers=headers).json() == {"status": "ok"}
    ready = guarded.get("/readyz", headers=headers)
    told = {name: value for name, value in ready.json().items() if value is not None}
    assert (ready.status_code, told) == (200, {"status": "ready"})


def test_a_caller_sees_the_workers(guarded: TestClient) -> None:
    ready = guarded.get("/readyz", headers=KEY).json()
    assert (ready["workers"], ready["by_device"]) == (1, {"cpu": 1})
    assert [worker["host"] for worker in ready["alive"]] == ["h"]


def test_without_keys_this_machine_sees_the_workers(client: TestClient) -> None:
    assert client.get("/readyz").json()["workers"] == 0


class StuckStore(MemoryJobStore):
    """A store that answers nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.released = threading.Semaphore(0), threading.Event()

    def count(self, state: JobState) -> int:
        self.asked.release()
        self.released.wait(20)
        return 0


def test_what_strangers_may_ask_for_needs_none_of_the_threads_of_other_requests() -> None:
    store = StuckStore()
    stuck = Backend(JobControl(store, MemoryQueue(), plan), MemoryRoster(), store)
    with serving(create_app(ServiceSettings(), stuck)) as url, ThreadPoolExecutor(THREADS) as callers:
        for _ in range(THREADS):
            callers.submit(httpx.get, f"{url}/metrics", timeout=20)
        for _ in range(THREADS):
            assert store.asked.acquire(timeout=10)
        try:
            for path in ("/healthz", "/readyz", "/openapi.json", "/docs"):
                assert httpx.get(url + path, timeout=5).status_code == 200
        finally:
            store.released.set()


class StuckRoster(MemoryRoster):
    """A roster that answers nothing until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def alive(self) -> tuple[WorkerNotice, ...]:
        self.released.wait(30)
        return ()


def test_a_store_that_hangs_is_not_ready_rather_than_silent() -> None:
    store, roster = MemoryJobStore(), StuckRoster()
    stuck = Backend(JobControl(store, MemoryQueue(), plan), roster, store)
    with serving(create_app(ServiceSettings(), stuck)) as url, ThreadPoolExecutor(4) as probes:
        try:
            answers = [probes.submit(httpx.get, f"{url}/readyz", timeout=15) for _ in range(4)]
            assert [each.result().json()["code"] for each in answers] == ["store_unavailable"] * 4
        finally:
            roster.released.set()

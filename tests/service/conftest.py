"""The application on stores in memory, as a client sees it."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from jobs.control import JobControl
from jobs.memory_store import MemoryJobStore
from jobs.queue import MemoryQueue
from jobs.roster import MemoryRoster
from service.app import create_app
from service.dependencies import Backend
from service.planning import plan
from service.settings import ServiceSettings


@pytest.fixture
def store() -> MemoryJobStore:
    return MemoryJobStore()


@pytest.fixture
def backend(store: MemoryJobStore) -> Backend:
    return Backend(JobControl(store, MemoryQueue(), plan), MemoryRoster())


@pytest.fixture
def client(backend: Backend) -> Iterator[TestClient]:
    app = create_app(ServiceSettings(max_request_bytes=200_000), backend)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client

"""The application on stores in memory, as a client sees it."""

import argparse
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import pytest
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.control.control import JobControl
from jobs.fleet.roster import MemoryRoster
from jobs.queue import MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.commands.parser import add_commands
from service.dependencies import Backend
from service.gate.connections import BoundedConnection
from service.planning import plan
from service.settings import ServiceSettings

Slipway = Callable[..., int]


@pytest.fixture
def store() -> MemoryJobStore:
    return MemoryJobStore()


@pytest.fixture
def backend(store: MemoryJobStore) -> Backend:
    return Backend(JobControl(store, MemoryQueue(), plan), MemoryRoster(), store)


@pytest.fixture
def client(backend: Backend) -> Iterator[TestClient]:
    app = create_app(ServiceSettings(max_request_bytes=200_000), backend)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@contextmanager
def serving(
    app: FastAPI,
    *,
    lifespan: Literal["auto", "off"] = "auto",
    http: type[BoundedConnection] = BoundedConnection,
    max_connections: int | None = None,
) -> Iterator[str]:
    """The URL of an application behind a real socket."""
    config = uvicorn.Config(
        app,
        log_config=None,
        port=0,
        lifespan=lifespan,
        http=http,
        limit_concurrency=max_connections and max_connections + 1,  # as service.__main__
        # A test that fails may leave a connection open, which must not keep the others waiting.
        timeout_graceful_shutdown=3,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join()


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    """The application behind a real socket."""
    with serving(create_app(ServiceSettings(), backend)) as url:
        yield url


@pytest.fixture
def slipway(url: str) -> Slipway:
    """A command of `slipway` that asks the API at `url`; it returns the exit code."""
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())

    def run(*arguments: str) -> int:
        parsed = parser.parse_args([*arguments, "--url", url])
        code: int = parsed.run(parsed)
        return code

    return run

"""Both job stores, Redis for real."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from jobs.stores.job_store import JobStore
from jobs.stores.memory_store import MemoryJobStore
from jobs.stores.redis_store import RedisJobStore, connect
from launcher.redis_server import running_redis


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("redis")
    with running_redis(folder) as server:
        yield server.url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    client = connect(redis_url)
    client.flushall()
    yield client
    client.close()


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> JobStore:
    if request.param == "memory":
        return MemoryJobStore()
    return RedisJobStore(request.getfixturevalue("redis_client"))

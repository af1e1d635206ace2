"""The application on a real Redis, with its senders, and a receiver of callbacks."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis
from starlette.testclient import TestClient

from jobs.stores.redis_store import connect
from launcher.redis_server import running_redis
from service.app import create_app
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from tests.jobs.hooks.factories import SECRET
from tests.service.hooks.receiver import Receiver, running_receiver

MakeClient = Callable[..., TestClient]

QUICK = (timedelta(seconds=0.05),) * 4


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


@pytest.fixture
def hook_settings() -> HookSettings:
    """Settings with short times, which allow callbacks to this machine."""
    return HookSettings.model_validate(
        {
            "webhook_secrets": SECRET,
            "callback_secrets": SECRET,
            "callback_networks": "127.0.0.0/8",
            "callback_pauses": QUICK,
            "callback_poll": timedelta(seconds=0.02),
            "callback_timeout": timedelta(seconds=1),
        }
    )


@pytest.fixture
def make_client(redis_url: str, redis_client: redis.Redis, hook_settings: HookSettings) -> MakeClient:
    def make(**changes: object) -> TestClient:
        hooks = hook_settings.model_copy(update=changes)
        app = create_app(ServiceSettings(redis_url=redis_url, hooks=hooks))
        return TestClient(app, raise_server_exceptions=False)

    return make


@pytest.fixture
def client(make_client: MakeClient) -> Iterator[TestClient]:
    with make_client() as client:
        yield client


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver

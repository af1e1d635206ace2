"""The number of times that a request makes the API wait for Redis, which is what accepting a job costs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from starlette.testclient import TestClient

from jobs.stores.redis_store import connect
from launcher.redis_server import running_redis
from service.app import create_app
from service.settings import ServiceSettings
from tests.service.requests import export_request

_REQUESTS = 50


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with running_redis(tmp_path / "redis") as server:
        yield server.url


def calls_of(client: redis.Redis, command: str) -> int:
    """Return how often clients have sent a command, or scripts have called it."""
    found = client.info("commandstats").get(f"cmdstat_{command}", {})
    return int(found.get("calls", 0))


def test_a_job_is_accepted_in_one_round_trip_and_shown_in_another(redis_url: str) -> None:
    client = connect(redis_url)
    with TestClient(create_app(ServiceSettings(redis_url=redis_url))) as api:
        first = api.post(
            "/exports", json=export_request()
        )  # reads the clock and the roster, loads the script
        assert first.status_code == 202, first.text
        once_a_second = ("time", "zrange", "mget")
        before = {name: calls_of(client, name) for name in ("evalsha", "lpush", *once_a_second)}
        for _ in range(_REQUESTS):
            assert api.post("/exports", json=export_request()).status_code == 202
            assert api.get(f"/exports/{first.json()['id']}").status_code == 200
        made = {name: calls_of(client, name) - count for name, count in before.items()}
    # Each job's message is sent by the script that stores the job. Senders of callbacks ask for the time too.
    assert made["evalsha"] >= _REQUESTS and made["lpush"] == _REQUESTS
    assert all(made[name] < _REQUESTS / 2 for name in once_a_second)

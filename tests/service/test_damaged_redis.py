"""The API on a real Redis in which something else has written: one clear answer, and no list is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from jobs.fleet.redis_tallies import TALLIES_KEY
from jobs.stores.redis_keys import JOB_KEY
from jobs.stores.redis_store import RedisJobStore, connect
from launcher.redis_server import running_redis
from service.app import create_app
from service.settings import ServiceSettings
from tests.jobs.factories import CONFIG_TEXT, make_job
from tests.service.requests import export_request


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    with running_redis(tmp_path / "redis") as server:
        yield server.url


def test_a_damaged_job_is_named_and_hides_no_other(redis_url: str) -> None:
    client, store = connect(redis_url), RedisJobStore(connect(redis_url))
    damaged, sound = make_job(), make_job()
    for job in (damaged, sound):
        store.add(job, CONFIG_TEXT)
    client.hset(JOB_KEY + damaged.id, "record", "{")
    client.hset(TALLIES_KEY, "{", "1")
    with TestClient(create_app(ServiceSettings(redis_url=redis_url))) as api:
        for call in (api.get, api.delete):
            answer = call(f"/exports/{damaged.id}")
            assert (answer.status_code, answer.json()["code"]) == (410, "record_unreadable")
        answer = api.post(f"/exports/{damaged.id}/cancel")
        assert (answer.status_code, answer.json()["code"]) == (410, "record_unreadable")
        assert [job["id"] for job in api.get("/exports").json()["jobs"]] == [sound.id]
        metrics = api.get("/metrics").text
    assert 'slipway_malformed_data_total{kind="record"}' in metrics and 'kind="Tally"' in metrics


def test_configs_of_more_bytes_than_a_key_may_keep_are_refused(redis_url: str, tmp_path: Path) -> None:
    settings = ServiceSettings(redis_url=redis_url, max_config_bytes_per_owner=100_000)
    request = export_request(force=True)
    with TestClient(create_app(settings)) as api:
        first = api.post("/exports", json=request)
        assert first.status_code == 202, first.text
        assert api.post("/exports", json=request).status_code == 202  # the same config
        another = {**request, "config": str(request["config"]) + "\n" * 100_000}
        refused = api.post("/exports", json=another)
    assert (refused.status_code, refused.json()["code"]) == (429, "configs_too_large")
    assert "delete jobs" in refused.json()["hint"]

"""Changes that pages of other sites ask for, with what a browser adds by itself: cookie and connection."""

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.model import JobState
from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.settings import ServiceSettings
from tests.jobs.factories import CONFIG_TEXT, make_job
from tests.service.gate.unsafe_calls import unsafe_calls

FOREIGN = [
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"origin": "http://elsewhere.example"},
    {"origin": "null"},
    {"origin": "http://["},  # no URL
    {"sec-fetch-site": "cross-site", "authorization": "Basic eDp5"},  # a browser adds this by itself
    {"sec-fetch-site": "cross-site", "authorization": "Bearer"},
]
OWN = [
    {},  # a program
    {"sec-fetch-site": "same-origin", "origin": "http://testserver"},
    {"sec-fetch-site": "none"},
    {"sec-fetch-site": "cross-site", "origin": "http://elsewhere.example", "authorization": "Bearer x"},
]


@pytest.fixture
def app() -> FastAPI:
    return create_app(ServiceSettings())  # without keys, the connection alone is a right


@pytest.mark.parametrize("headers", FOREIGN)
def test_another_sites_page_changes_nothing(app: FastAPI, headers: dict[str, str]) -> None:
    client = TestClient(app)
    for method, path in unsafe_calls(app):
        if path == "/webhooks/training":
            continue  # signed, which no browser does by itself
        answer = client.request(method, path, headers={**headers, "content-type": "text/plain"}, content="{}")
        assert (answer.status_code, answer.json()["code"]) == (403, "cross_site_request"), path


@pytest.mark.parametrize("headers", FOREIGN)
def test_another_sites_page_cancels_no_job(
    client: TestClient, store: MemoryJobStore, headers: dict[str, str]
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    assert client.post(f"/exports/{job.id}/cancel", headers=headers).status_code == 403
    assert store.get(job.id).state is JobState.QUEUED


@pytest.mark.parametrize("headers", OWN)
def test_programs_and_own_pages_are_answered(
    client: TestClient, store: MemoryJobStore, headers: dict[str, str]
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    assert client.post(f"/exports/{job.id}/cancel", headers=headers).status_code == 202


@pytest.mark.parametrize("headers", FOREIGN)
def test_links_of_other_sites_are_followed(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/exports", headers=headers).status_code == 200

"""The pages of a service that requires keys."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from tests.dashboard import sample
from tests.dashboard.conftest import KEYS


@pytest.fixture
def stranger(guarded: FastAPI) -> Iterator[TestClient]:
    with TestClient(guarded, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def queued(store: MemoryJobStore) -> Job:
    job = sample.job(JobState.QUEUED)
    store.add(job, sample.CONFIG_TEXT)
    return job


def sign_in(client: TestClient, name: str, wanted: str = "/") -> str:
    answer = client.post("/sign-in", data={"key": KEYS[name], "wanted": wanted}, follow_redirects=False)
    assert answer.status_code == 303
    assert {"httponly", "samesite=lax"} <= {
        part.strip().lower() for part in answer.headers["set-cookie"].split(";")
    }
    return str(answer.headers["location"])


@pytest.mark.parametrize("path", ["/", "/workers", "/jobs/{id}", "/jobs/{id}/plan", "/jobs/{id}/log"])
def test_a_stranger_is_asked_for_a_key(stranger: TestClient, queued: Job, path: str) -> None:
    answer = stranger.get(path.format(id=queued.id))
    assert (answer.status_code, "API key" in answer.text) == (401, True)
    assert "hstu_match" not in answer.text


def test_a_key_opens_the_page_that_was_asked_for(stranger: TestClient, queued: Job) -> None:
    wanted = f"/jobs/{queued.id}"
    assert f'value="{wanted}"' in stranger.get(wanted).text
    assert sign_in(stranger, "watcher", wanted) == wanted
    assert "hstu_match" in stranger.get(wanted).text


@pytest.mark.parametrize(
    "wanted", ["//elsewhere.example", "https://elsewhere.example", "/\\elsewhere.example", ""]
)
def test_nobody_is_led_elsewhere(stranger: TestClient, wanted: str) -> None:
    assert sign_in(stranger, "watcher", wanted) == "/"


def test_an_unknown_key_is_refused(stranger: TestClient) -> None:
    answer = stranger.post("/sign-in", data={"key": "wrong", "wanted": "/"})
    assert answer.status_code == 401
    assert "no key that this service knows" in answer.text
    assert "set-cookie" not in answer.headers


def test_a_reader_sees_no_button_and_can_press_none(
    stranger: TestClient, queued: Job, store: MemoryJobStore
) -> None:
    sign_in(stranger, "watcher")
    assert "/cancel" not in stranger.get(f"/jobs/{queued.id}").text
    assert stranger.post(f"/jobs/{queued.id}/cancel").status_code == 403
    assert store.get(queued.id).state is JobState.QUEUED


def test_who_may_submit_may_cancel(stranger: TestClient, queued: Job, store: MemoryJobStore) -> None:
    sign_in(stranger, "trainer")
    page = stranger.get(f"/jobs/{queued.id}").text
    assert "/cancel" in page and "trainer" in page
    stranger.post(f"/jobs/{queued.id}/cancel")
    assert store.get(queued.id).state is JobState.CANCELLED


def test_signing_out_forgets_the_key(stranger: TestClient) -> None:
    sign_in(stranger, "watcher")
    assert stranger.get("/").status_code == 200
    stranger.post("/sign-out")
    assert stranger.get("/").status_code == 401


def test_a_page_of_another_site_cannot_sign_anyone_in(stranger: TestClient) -> None:
    answer = stranger.post(
        "/sign-in", data={"key": KEYS["watcher"]}, headers={"origin": "http://elsewhere.example"}
    )
    assert answer.status_code == 403

"""Errors as a browser shows them: pages for people, problems for programs."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.dashboard.conftest import KEYS

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture
def stranger(guarded: FastAPI) -> Iterator[TestClient]:
    with TestClient(guarded, raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "no_such_call"),
        ("GET", "/exports/nonsense", 404, "job_not_found"),
        ("GET", "/exports?limit=0", 422, "invalid_request"),
        ("GET", "/models/none/latest", 404, "model_not_found"),
        ("PUT", "/exports", 405, "method_not_allowed"),
        ("GET", "/pages/models/none", 404, "model_not_found"),
        ("GET", "/static/none.js", 404, "no_such_call"),
    ],
)
def test_a_browser_gets_an_error_as_a_page_and_a_program_as_a_problem(
    client: TestClient, method: str, path: str, status: int, code: str
) -> None:
    page = client.request(method, path, headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert code in page.text and 'href="/"' in page.text and "<h1>" in page.text
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    if not path.startswith("/pages"):
        problem = client.request(method, path)
        assert (problem.status_code, problem.json()["code"]) == (status, code)
        assert page.headers.get("allow") == problem.headers.get("allow")


def test_a_wrong_body_is_a_page_too(client: TestClient) -> None:
    answer = client.post("/exports", content=b"{", headers={**BROWSER, "content-type": "application/json"})
    assert (answer.status_code, "the body is no JSON" in answer.text) == (422, True)
    assert "<h1>" in answer.text


def test_what_the_gate_refuses_is_a_page_too(client: TestClient) -> None:
    answer = client.post("/jobs/x/cancel", headers={**BROWSER, "origin": "http://elsewhere.example"})
    assert (answer.status_code, "cross_site_request" in answer.text) == (403, True)
    assert answer.headers["content-type"].startswith("text/html")
    large = client.post("/exports", content=b"x" * 300_000, headers=BROWSER)
    assert (large.status_code, "request_too_large" in large.text, "<h1>" in large.text) == (413, True, True)


def test_a_bug_is_a_page_without_its_details(
    client: TestClient, store: MemoryJobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the details of a bug")

    monkeypatch.setattr(store, "page", fail)
    for path in ("/", "/exports"):
        answer = client.get(path, headers=BROWSER)
        assert (answer.status_code, "internal_error" in answer.text) == (500, True)
        assert "<h1>" in answer.text and "details of a bug" not in answer.text


def test_a_store_that_is_away_is_a_page_that_says_when_to_come_back() -> None:
    with TestClient(create_app(ServiceSettings(redis_url="redis://127.0.0.1:1/0"))) as stranded:
        answer = stranded.get("/exports", headers=BROWSER)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "store_unavailable" in answer.text and "<h1>" in answer.text


def test_a_browser_without_a_key_is_asked_for_one_wherever_it_goes(stranger: TestClient) -> None:
    answer = stranger.get("/exports?limit=3", headers=BROWSER)
    assert (answer.status_code, 'value="/exports?limit=3"' in answer.text) == (401, True)
    assert stranger.get("/exports").json()["code"] == "unauthenticated"


def test_who_may_not_do_it_is_told_on_a_page_with_their_name(stranger: TestClient) -> None:
    cookie = {"cookie": f"slipway_key={KEYS['watcher']}", **BROWSER}
    answer = stranger.post("/pages/models/m/promote", data={"job_id": "0" * 26}, headers=cookie)
    assert (answer.status_code, "needs the scope `admin`" in answer.text) == (403, True)
    assert "Sign out" in answer.text and "watcher" in answer.text


def test_an_error_shows_nothing_as_markup(client: TestClient) -> None:
    answer = client.get("/<script>alert(1)</script>", headers=BROWSER)
    assert answer.status_code == 404 and "<script>alert" not in answer.text


def test_the_documentation_is_where_the_operator_says(backend: Backend, client: TestClient) -> None:
    assert "SLIPWAY_DOCS_URL" in client.get("/documentation").text
    settings = ServiceSettings(docs_url="https://docs.example/slipway/")
    with TestClient(create_app(settings, backend), follow_redirects=False) as told:
        answer = told.get("/documentation")
    assert (answer.status_code, answer.headers["location"]) == (307, "https://docs.example/slipway/")


@pytest.mark.parametrize("wrong", ["javascript:alert(1)", "docs.example", "https://a b"])
def test_only_a_url_of_the_web_is_taken_for_the_documentation(wrong: str) -> None:
    with pytest.raises(ValueError, match="docs_url"):
        ServiceSettings(docs_url=wrong)

"""Errors and limits of the API."""

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from exporter.errors import ExportError
from jobs.control.control import JobControl, Plan
from jobs.fleet.roster import MemoryRoster
from service.app import create_app
from service.dependencies import Backend
from service.errors import status_of
from service.settings import ServiceSettings
from tests.service.requests import export_request


@pytest.fixture
def stranded() -> Iterator[TestClient]:
    """The application while Redis is away."""
    with TestClient(create_app(ServiceSettings(redis_url="redis://127.0.0.1:1/0"))) as client:
        yield client


@pytest.mark.parametrize("path", ["/readyz", "/exports", "/exports/01j00000000000000000000000"])
def test_a_redis_that_is_away_is_a_problem_to_retry(stranded: TestClient, path: str) -> None:
    answer = stranded.get(path)
    assert (answer.status_code, answer.json()["code"]) == (503, "store_unavailable")
    assert int(answer.headers["Retry-After"]) > 0


def test_a_submit_without_redis_is_refused(stranded: TestClient) -> None:
    assert stranded.post("/exports", json=export_request()).status_code == 503


@pytest.mark.parametrize("announced", [True, False])
def test_a_large_request_is_refused(client: TestClient, announced: bool) -> None:
    body = b" " * 200_001
    content = body if announced else iter([body[:100_000], body[100_000:]])
    answer = client.post("/exports", content=content, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")


def test_an_unknown_path_is_a_problem_too(client: TestClient) -> None:
    answer = client.get("/nowhere")
    assert (answer.status_code, answer.json()["code"]) == (404, "no_such_call")
    answer = client.put("/exports")
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize("body", [b"\xff", b"[" * 100_000], ids=["no text", "too deep"])
def test_a_body_that_does_not_parse_is_an_invalid_request(client: TestClient, body: bytes) -> None:
    answer = client.post("/exports", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")


def test_an_unforeseen_error_is_no_traceback(backend: Backend) -> None:
    def broken(spec: object) -> Plan:
        raise ZeroDivisionError("secret")

    backend = Backend(
        JobControl(backend.jobs.store, backend.jobs.queue, broken), MemoryRoster(), backend.totals
    )
    with TestClient(create_app(ServiceSettings(), backend), raise_server_exceptions=False) as client:
        answer = client.post("/exports", json=export_request())
    assert (answer.status_code, answer.json()["code"]) == (500, "internal_error")
    assert "secret" not in answer.text


def _tree(error: type[ExportError]) -> Iterator[type[ExportError]]:
    yield error
    for child in error.__subclasses__():
        yield from _tree(child)


def test_every_error_has_a_status_and_a_code_of_its_own() -> None:
    errors = list(_tree(ExportError))
    assert all(400 <= status_of(error) < 600 for error in errors)
    assert len({error.code for error in errors}) == len(errors)


def test_the_documentation_shows_the_problems(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    answers = document["paths"]["/exports"]["post"]["responses"]
    assert set(answers) == {"200", "202", "401", "403", "409", "422", "429", "502", "503"}
    assert answers["422"]["content"].keys() == {"application/problem+json"}
    assert "code" in document["components"]["schemas"]["Problem"]["properties"]
    assert client.get("/docs").status_code == 200


def test_the_page_of_calls_shows_every_call_and_type(client: TestClient) -> None:
    page, document = client.get("/docs").text, client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        assert all(f"<code>{method.upper()} {path}</code>" in page for method in operations)
    for name, schema in document["components"]["schemas"].items():
        assert f'id="type-{name}"' in page
        assert all(f"<code>{field}</code>" in page for field in schema.get("properties", ()))


def test_the_page_of_calls_takes_nothing_from_elsewhere(client: TestClient) -> None:
    answer = client.get("/docs")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    addresses = re.findall(r'(?:src|href)="([^"]*)"', answer.text)
    assert addresses and all(re.match("#|/(?!/)", each) for each in addresses)
    assert client.get("/docs", headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304
    assert client.get("/redoc").status_code == 404

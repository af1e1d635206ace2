"""Requests whose bodies break off: nothing may be done for them."""

import time
from collections.abc import Iterator

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from service.app import create_app
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from tests.service.conftest import serving
from tests.service.gate.sockets import connected, head
from tests.service.gate.unsafe_calls import unsafe_calls


class Probe:
    """A backend that notes whether a route asked for any part of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> object:
        self.asked.append(name)
        raise AttributeError(name)


@pytest.fixture
def probe() -> Probe:
    return Probe()


@pytest.fixture
def app(probe: Probe) -> FastAPI:
    app = create_app(ServiceSettings(hooks=HookSettings()))
    app.state.backend = app.state.hooks = probe  # its lifespan, which would set them, is not begun
    return app


@pytest.fixture
def url(app: FastAPI) -> Iterator[str]:
    with serving(app, lifespan="off") as url:
        yield url


@pytest.mark.parametrize(
    ("length", "sent"),
    [
        (44, b""),
        (44, b'{"job_id": null}'),
        (None, b""),
        (None, b'10\r\n{"job_id": null}\r\n'),
        (None, b'10\r\n{"job_'),
    ],
    ids=["nothing", "less than announced", "no chunk", "no last chunk", "part of a chunk"],
)
def test_nothing_is_done_for_a_body_that_breaks_off(
    app: FastAPI, url: str, probe: Probe, length: int | None, sent: bytes
) -> None:
    for method, path in unsafe_calls(app):
        with connected(url) as connection:
            connection.sendall(head(method, path, length=length) + sent)
            time.sleep(0.005)  # so that the server has begun with it
    time.sleep(0.2)
    assert probe.asked == []
    httpx.post(f"{url}/models/m/promote", json={"job_id": None})
    assert probe.asked == ["jobs"]


def test_a_sign_in_that_breaks_off_is_no_guess(tmp_path_factory: pytest.TempPathFactory) -> None:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text('{"keys": [{"name": "a", "secret": "0123456789abcdef", "scopes": ["read"]}]}')
    settings = ServiceSettings(api_keys_file=keys, guess_limit=1)
    with serving(create_app(settings), lifespan="off") as url:
        for _ in range(3):
            with connected(url) as connection:
                connection.sendall(head("POST", "/sign-in", length=100) + b"key=wrong")
                time.sleep(0.01)
        time.sleep(0.1)
        assert httpx.post(f"{url}/sign-in", data={"key": "wrong"}).status_code == 401
        assert httpx.post(f"{url}/sign-in", data={"key": "wrong"}).status_code == 429


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_a_promotion_names_its_job_or_null(client: TestClient, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post("/models/m/promote", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    answer = client.post("/models/m/promote", json={"job_id": None})
    assert (answer.status_code, answer.json()["code"]) == (404, "model_not_found")

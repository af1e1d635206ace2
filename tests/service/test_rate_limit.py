"""Guessing keys and signatures takes time; bodies do not."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.access.rate_limit import WINDOW_S, GuessLimit
from service.app import create_app
from service.dependencies import Backend
from service.errors import TooManyGuesses
from service.settings import ServiceSettings
from tests.service.conftest import serving

SECRET = "a-secret-that-is-right"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def guarded(backend: Backend, tmp_path: Path) -> Iterator[TestClient]:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "k", "secret": SECRET, "scopes": ["read"]}]}))
    with TestClient(create_app(ServiceSettings(api_keys_file=path, guess_limit=5), backend)) as client:
        yield client


def test_who_guesses_keys_has_to_wait_and_learns_nothing(guarded: TestClient) -> None:
    answers = [guarded.get("/exports", headers=bearer(f"guess-{number}")).status_code for number in range(9)]
    assert answers == [401] * 5 + [429] * 4
    refused = guarded.get("/exports", headers=bearer(SECRET))  # right at last, and not even compared
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_guesses")
    assert int(refused.headers["Retry-After"]) > 0


def test_who_was_let_in_before_is_still_let_in(guarded: TestClient) -> None:
    assert guarded.get("/exports", headers=bearer(SECRET)).status_code == 200
    for number in range(9):
        guarded.get("/exports", headers=bearer(f"guess-{number}"))
    assert guarded.get("/exports", headers=bearer(SECRET)).status_code == 200


def test_the_pages_sign_in_counts_as_well(guarded: TestClient) -> None:
    site = {"Origin": "http://testserver"}
    answers = [
        guarded.post("/sign-in", data={"key": f"guess-{number}"}, headers=site).status_code
        for number in range(7)
    ]
    assert answers == [401] * 5 + [429] * 2


def test_a_request_without_any_key_is_no_guess(guarded: TestClient) -> None:
    assert {guarded.get("/exports").status_code for _ in range(9)} == {401}


def test_addresses_are_counted_apart_and_forgiven() -> None:
    clock = Clock()
    limit = GuessLimit(2, clock)
    for _ in range(2):
        limit.count("192.0.2.1", right=False)
    with pytest.raises(TooManyGuesses):
        limit.require_below("192.0.2.1")
    limit.require_below("192.0.2.2")
    clock.now += WINDOW_S + 1
    limit.require_below("192.0.2.1")


def test_a_network_of_ipv6_is_one_address() -> None:
    limit = GuessLimit(3)
    for number in range(3):
        limit.count(f"2001:db8::{number:x}", right=False)
    with pytest.raises(TooManyGuesses):
        limit.require_below("2001:db8::ffff")
    limit.require_below("2001:db8:0:1::1")


@pytest.mark.parametrize("name", ["client-{}", "::ffff:192.0.2.1%{}", "2001:db8::1%{}", "192.0.2.{}x"])
def test_invented_addresses_are_one(name: str) -> None:
    """A proxy that only passes X-Forwarded-For on lets callers write anything there."""
    limit = GuessLimit(3)
    for number in range(3):
        limit.count(name.format(number), right=False)
    with pytest.raises(TooManyGuesses):
        limit.require_below(name.format(9))


def test_memory_does_not_grow_with_the_addresses() -> None:
    limit = GuessLimit(1)
    for number in range(12_000):
        limit.count(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", right=False)
    limit.require_below("10.0.0.1")  # the oldest are forgotten
    with pytest.raises(TooManyGuesses):
        limit.require_below("10.0.46.223")


@pytest.mark.parametrize("length", [b"content-length: 1000", b"transfer-encoding: chunked"])
def test_a_body_that_drips_is_refused_in_time(backend: Backend, length: bytes) -> None:
    with serving(create_app(ServiceSettings(max_request_time=0.5), backend)) as url:
        host, port = url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            head = b"POST /exports HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
            connection.sendall(head + length + b"\r\n\r\n")
            begun = time.monotonic()
            connection.settimeout(0.1)
            answer = b""
            while not answer and time.monotonic() - begun < 5:
                connection.sendall(b"1\r\n{\r\n" if b"chunked" in length else b"{")
                try:
                    answer = connection.recv(4096)
                except TimeoutError:
                    continue
            connection.settimeout(5)
            with contextlib.suppress(ConnectionResetError):  # it may say so: there was more to read
                while b"request_too_slow" not in answer and (more := connection.recv(4096)):
                    answer += more
        assert answer.startswith(b"HTTP/1.1 408") and b"request_too_slow" in answer

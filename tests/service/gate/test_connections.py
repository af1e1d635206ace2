"""Connections on which no request comes or no answer is read: they end, and their number is bounded."""

import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import httpx
import pytest
from fastapi import FastAPI

from launcher.ports import free_port
from processes.settings import inherited_environment
from service.app import create_app
from service.dependencies import Backend
from service.gate.connections import BoundedConnection
from service.settings import ServiceSettings
from tests.service.conftest import serving
from tests.service.gate.sockets import SECONDS, answer_on, connected, head, status_of

ASK = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Impatient(BoundedConnection):
    """A connection that waits only briefly for a head, and for its answers to be read."""

    head_seconds = 0.3
    unread_seconds = 1.0


@pytest.fixture
def app(backend: Backend) -> FastAPI:
    return create_app(ServiceSettings(), backend)


@pytest.mark.parametrize(
    "sent", [[b""], [ASK[:20]], [ASK, ASK[:20]]], ids=["nothing", "part of a head", "part of a second head"]
)
def test_a_connection_without_a_head_ends(app: FastAPI, sent: list[bytes]) -> None:
    with serving(app, http=Impatient) as url, connected(url) as connection:
        for each in sent:
            connection.sendall(each)
            time.sleep(0.1)
        begun = time.monotonic()
        answer_on(connection)
        assert time.monotonic() - begun < 2


def test_a_head_that_drips_ends(app: FastAPI) -> None:
    with serving(app, http=Impatient) as url, connected(url) as connection:
        connection.settimeout(0.05)
        begun = time.monotonic()
        ended = False
        while not ended and time.monotonic() - begun < 5:
            try:
                connection.sendall(b"x")
                ended = connection.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                ended = True
        assert ended and time.monotonic() - begun < 2


def test_a_request_in_progress_is_no_wait_for_a_head(app: FastAPI) -> None:
    with serving(app, http=Impatient) as url, connected(url) as connection:
        connection.sendall(head("POST", "/exports", "Connection: close", length=10))
        for _ in range(10):
            time.sleep(0.1)
            connection.sendall(b" ")
        assert status_of(answer_on(connection)) == 422


def test_a_connection_whose_answers_are_not_read_ends(app: FastAPI) -> None:
    asked = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 200
    with serving(app, http=Impatient) as url, connected(url) as connection:
        connection.sendall(asked)
        time.sleep(3)
        with suppress(ConnectionError):
            assert answer_on(connection).count(b"</html>") < 200


def test_answers_that_are_read_slowly_come_whole(app: FastAPI) -> None:
    asked = b"GET /docs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 60
    with serving(app, http=Impatient) as url, connected(url) as connection:
        connection.sendall(asked + ASK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        answer = b""
        while part := connection.recv(1 << 20):
            answer += part
            time.sleep(0.1)
    assert answer.count(b"</html>") == 60


def test_silent_connections_keep_nobody_waiting(app: FastAPI) -> None:
    with serving(app, max_connections=10) as url, ExitStack() as opened:
        silent = [opened.enter_context(connected(url)) for _ in range(100)]
        for each in silent[:90]:
            with suppress(ConnectionError):
                assert each.recv(1) == b""  # ended to make room, long before its head had to come
        for path in ("/healthz", "/exports"):
            assert httpx.get(url + path).status_code == 200


def test_requests_in_progress_are_not_ended_to_make_room(app: FastAPI) -> None:
    with serving(app, max_connections=3) as url, ExitStack() as opened:
        busy = [opened.enter_context(connected(url)) for _ in range(3)]
        for each in busy:
            each.sendall(head("POST", "/exports", "Connection: close", length=2))
        time.sleep(0.1)
        with connected(url) as refused:
            assert status_of(answer_on(refused)) == 503
        for each in busy:
            each.sendall(b"{}")
            assert status_of(answer_on(each)) == 422
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_connection_that_waits_for_its_next_request_makes_room(app: FastAPI) -> None:
    with serving(app, max_connections=1) as url, connected(url) as first:
        first.sendall(ASK)
        time.sleep(0.1)
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert status_of(answer_on(first)) == 200


def test_the_program_takes_the_bound_from_its_setting() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {"SLIPWAY_MAX_CONNECTIONS": "2", "SLIPWAY_REDIS_URL": "redis://127.0.0.1:1/0"}
    command = [sys.executable, "-m", "service", "--port", str(port), "--grace", "1"]
    with subprocess.Popen(command, env=inherited_environment(settings), stderr=subprocess.DEVNULL) as program:
        try:
            with _first_connection(port) as first, connected(url) as second:
                first.sendall(head("POST", "/exports", length=2))
                assert httpx.get(f"{url}/healthz").status_code == 200
                with suppress(ConnectionError):
                    assert second.recv(1) == b""
                with connected(url) as third:
                    third.sendall(head("POST", "/exports", length=2))
                    time.sleep(0.1)
                    with connected(url) as fourth:
                        assert status_of(answer_on(fourth)) == 503
        finally:
            program.send_signal(signal.SIGTERM)


def _first_connection(port: int) -> socket.socket:
    deadline = time.monotonic() + SECONDS * 3
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)

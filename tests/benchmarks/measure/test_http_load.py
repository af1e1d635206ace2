"""Requests as the service benchmark sends them."""

import http.server
import threading
from collections.abc import Iterator

import pytest

from benchmarks.measure.http_load import Caller, per_second


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        known = self.headers.get("If-None-Match") == '"7"'
        self.send_response(304 if known else 200)
        self.send_header("ETag", '"7"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Not on stderr."""


@pytest.fixture
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_entity_tag_is_given_and_taken(port: int) -> None:
    with Caller(port) as caller:
        _, tag = caller.get("/", {}, expect=200)
        milliseconds, _ = caller.get("/", {"If-None-Match": tag}, expect=304)
    assert milliseconds > 0


def test_another_answer_than_expected_ends_the_benchmark(port: int) -> None:
    with pytest.raises(SystemExit, match="answered 200"):
        per_second(port, "/", None, clients=2, requests=4, expect=202)


def test_several_clients_send_their_shares(port: int) -> None:
    assert per_second(port, "/", None, clients=2, requests=10, expect=200) > 0

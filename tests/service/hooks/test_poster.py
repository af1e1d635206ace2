import socket
import threading
import time
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from service.hooks.poster import Poster
from tests.service.hooks.receiver import Receiver, running_receiver, self_signed

LOOPBACK = (ip_network("127.0.0.0/8"),)
SECOND = timedelta(seconds=1)


@pytest.fixture
def poster() -> Poster:
    return Poster(LOOPBACK, SECOND)


def test_a_body_arrives_as_it_is(poster: Poster, receiver: Receiver) -> None:
    answer = poster.post(f"{receiver.url}/hook?a=1", {"webhook-id": "m"}, b"{}")
    assert (answer.status, answer.accepted, answer.error) == (204, True, "")
    (received,) = receiver.received
    assert (received.path, received.headers["webhook-id"], received.body) == ("/hook?a=1", "m", b"{}")


def test_a_redirect_is_not_followed(poster: Poster, receiver: Receiver) -> None:
    receiver.answers = [307]
    answer = poster.post(receiver.url, {}, b"{}")
    assert (answer.accepted, answer.status) == (False, 307)
    assert "not followed" in answer.error
    assert len(receiver.received) == 1


def test_no_proxy_of_the_environment_is_asked(
    poster: Poster, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert poster.post(receiver.url, {}, b"{}").accepted


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "2130706433"])
def test_this_machine_is_not_reached_unless_allowed(receiver: Receiver, host: str) -> None:
    port = receiver.url.rpartition(":")[2]
    answer = Poster((), SECOND).post(f"http://{host}:{port}/", {}, b"{}")
    assert (answer.accepted, answer.hopeless) == (False, True)
    assert receiver.received == []


def test_a_receiver_that_hangs_is_left(poster: Poster, receiver: Receiver) -> None:
    receiver.before = lambda: time.sleep(3)
    begun = time.monotonic()
    answer = poster.post(receiver.url, {}, b"{}")
    assert answer.error == "no answer within 1 s"
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("trusted", [True, False])
def test_a_certificate_is_checked(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trusted: bool
) -> None:
    certificate = self_signed(tmp_path, "localhost")
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with running_receiver(certificate) as secure:
        answer = Poster(LOOPBACK, SECOND).post(secure.url, {}, b"{}")
    assert (answer.accepted, len(secure.received)) == (trusted, int(trusted))
    assert trusted or "certificate" in answer.error


@pytest.mark.parametrize("drip", [b"H", b"HTTP/1.1 200 OK\r\nx: y\r\n"])
def test_a_receiver_that_drips_is_left(poster: Poster, drip: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_drip, args=(server, drip), daemon=True).start()
        begun = time.monotonic()
        answer = poster.post(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, b"{}")
        assert not answer.accepted
        assert time.monotonic() - begun < 2


def test_of_an_endless_answer_a_little_is_read(poster: Poster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        endless = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"x" * 100_000
        threading.Thread(target=_drip, args=(server, endless), daemon=True).start()
        begun = time.monotonic()
        assert poster.post(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, b"{}").accepted
        assert time.monotonic() - begun < 2


@pytest.mark.parametrize("answer", [b"", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"])
def test_what_is_no_http_is_an_error(poster: Poster, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_say, args=(server, answer), daemon=True).start()
        told = poster.post(f"http://127.0.0.1:{server.getsockname()[1]}/", {}, b"{}")
        assert (told.status, told.accepted) == (None, False)
        assert told.error


def test_nobody_there_is_an_error_that_may_pass(poster: Poster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    answer = poster.post(f"http://127.0.0.1:{port}/", {}, b"{}")
    assert "ConnectError" in answer.error
    assert not answer.hopeless


def test_a_name_that_nobody_has_is_an_error_that_may_pass(poster: Poster) -> None:
    answer = poster.post("http://no-such-host.invalid/", {}, b"{}")
    assert "cannot be resolved" in answer.error
    assert not answer.hopeless


def _drip(server: socket.socket, text: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        try:
            while True:
                connection.sendall(text)
                time.sleep(0.2)
        except OSError:
            return


def _say(server: socket.socket, answer: bytes) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(answer)

"""Requests byte by byte over real sockets, which an HTTP library would not send."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

SECONDS = 10.0


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    address = urlsplit(url)
    assert address.hostname and address.port
    with socket.create_connection((address.hostname, address.port), timeout=SECONDS) as connection:
        yield connection


def head(method: str, path: str, *fields: str, length: int | None = None) -> bytes:
    """The head of a request; without a length its body is chunked."""
    body = f"Content-Length: {length}" if length is not None else "Transfer-Encoding: chunked"
    lines = (f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", body, *fields)
    return "\r\n".join((*lines, "", "")).encode()


def answer_to(url: str, *sent: bytes) -> bytes:
    """Send the bytes, and return all that comes until the server ends the connection.

    A server that refuses a request need not read all of it: what it has not read resets the connection, and
    what it has answered can be read all the same.
    """
    with connected(url) as connection:
        with suppress(ConnectionError):
            for each in sent:
                connection.sendall(each)
        return answer_on(connection)


def answer_on(connection: socket.socket) -> bytes:
    answer = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            answer += part
    return answer


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])

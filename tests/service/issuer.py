"""An issuer of tokens behind a real socket, which answers as it is told to."""

import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

ISSUER = "https://id.example"
Answer = Callable[[socket.socket], None]


class Signer:
    """A key of the issuer's, and the tokens that it signs."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @property
    def public(self) -> dict[str, object]:
        """The key as the issuer publishes it."""
        return {
            **jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True),
            "kid": self.key_id,
        }

    def token(self, *, jwk: object = None, **changes: object) -> str:
        """Return a token with these claims; `jwk` is the key that its head brings along."""
        claims: dict[str, object] = {
            "iss": ISSUER,
            "aud": "slipway",
            "sub": "robot",
            "scope": "slipway:submit",
            **changes,
        }
        claims.setdefault("exp", time.time() + 300)
        head = {"kid": self.key_id, "jwk": jwk} if jwk else {"kid": self.key_id}
        return jwt.encode(claims, self._key, algorithm="RS256", headers=head)

    @staticmethod
    def invent(key_id: str | None, algorithm: str = "RS256") -> str:
        """Return what looks like a token, but that nobody has signed."""
        header = {"alg": algorithm} | ({"kid": key_id} if key_id else {})
        parts = [json.dumps(part).encode() for part in (header, {"iss": ISSUER, "sub": "robot"})]
        return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (*parts, b"signed"))


class IssuerServer:
    """The issuer's side of every connection: what it answers, and how many it got."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/keys"

    def let_go(self) -> None:
        """Break every connection, so that nothing waits for them any longer."""
        while self.connections:
            with self.connections.pop() as connection:
                _shut(connection)

    def stop(self) -> None:
        _shut(self._listener)
        self._listener.close()
        self.let_go()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self.asked += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):  # the client may go, or the test break the connection
            connection.recv(65_536)
            self.answer(connection)


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving_issuer(answer: Answer) -> Iterator[IssuerServer]:
    """An issuer that answers as `answer` does, which may be replaced meanwhile."""
    server = IssuerServer(answer)
    try:
        yield server
    finally:
        server.stop()


def publishing(signers: Sequence[Signer]) -> Answer:
    """Answer with the keys of these signers."""
    return _answering(json.dumps({"keys": [each.public for each in signers]}).encode())


def hang(connection: socket.socket) -> None:
    """Say nothing, and keep the connection."""


def drip(connection: socket.socket) -> None:
    """Send a byte now and then, for ever, none of which ends the answer."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.02)


def drip_head(connection: socket.socket) -> None:
    """Send the answer's head a byte at a time."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Header: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


def flood(connection: socket.socket) -> None:
    """Send an answer that does not end, as fast as it is read."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{")
    while True:
        connection.sendall(b" " * 65_536)


def _answering(body: bytes, head: bytes = b"200 OK") -> Answer:
    def answer(connection: socket.socket) -> None:
        connection.sendall(
            b"HTTP/1.1 %b\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (head, len(body), body)
        )

    return answer


def _garble(connection: socket.socket) -> None:
    connection.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")


def _break_off(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    _shut(connection)


MISBEHAVIOURS: dict[str, Answer] = {
    "hangs": hang,
    "drips its answer": drip,
    "drips the answer's head": drip_head,
    "sends without an end": flood,
    "answers 500": _answering(b"{}", b"500 Internal Server Error"),
    "redirects": _answering(b"", b"302 Found\r\nLocation: /keys"),
    "speaks no HTTP": _garble,
    "breaks off": _break_off,
    "answers with a page": _answering(b"<html>sign in</html>"),
    "answers with a list": _answering(b"[]"),
    "nests 50,000 lists": _answering(b"[" * 50_000),
    "has no key": _answering(b'{"keys": []}'),
    "has keys of wrong types": _answering(
        b'{"keys": [7, {"kty": ["RSA"]}, {"kty": "RSA", "alg": [], "n": 1}]}'
    ),
    "has keys that cannot be decoded": _answering(
        b'{"keys": [{"kid": "a", "kty": "RSA", "n": "%%", "e": "AQAB"}]}'
    ),
    "has 101 keys": _answering(json.dumps({"keys": [{"kid": str(each)} for each in range(101)]}).encode()),
    "packs its answer": _answering(b"\x1f\x8b", b"200 OK\r\nContent-Encoding: gzip"),
}

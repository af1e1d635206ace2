"""An HTTP server that passes requests on to an emulator, unless a test or a dialect's rule answers them."""

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

_OF_ONE_HOP = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "content-length", "host"}


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it came: the target is a path, or a URL where a client takes the relay for a proxy."""

    method: str
    target: str
    headers: dict[str, str]  # by names in lower case
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        parsed = parse_qs(urlsplit(self.target).query, keep_blank_values=True)
        return {name: values[0] for name, values in parsed.items()}

    @property
    def host(self) -> str:
        return urlsplit(self.target).netloc or self.headers["host"]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer; of `cut_at`, only so many bytes of the body are sent before the connection ends."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    cut_at: int | None = None


Forward = Callable[[Request], Reply]
Rule = Callable[[Request, Forward], Reply]


class Relay(ThreadingHTTPServer):
    """The relay; `upstream` is the emulator's port."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = 0
        self.dialect: Rule = _pass_on  # what the emulator lacks
        self.interrupt: Rule = _pass_on  # what a test does to requests
        self.asked: list[Request] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, request: Request) -> Reply:
        self.asked.append(request)
        return self.interrupt(request, lambda passed: self.dialect(passed, self.forward))

    def forward(self, request: Request) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        try:
            parts = urlsplit(request.target)
            target = f"{parts.path}?{parts.query}" if parts.query else parts.path
            connection.putrequest(request.method, target, skip_host=True, skip_accept_encoding=True)
            connection.putheader("Host", request.headers["host"])
            for name, value in request.headers.items():
                if name not in _OF_ONE_HOP:
                    connection.putheader(name, value)
            if request.body or request.method in ("PUT", "POST"):
                connection.putheader("Content-Length", str(len(request.body)))
            connection.endheaders(request.body)
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(status=answer.status, headers=headers, body=answer.read())
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet
    server: Relay

    def do_any(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(method=self.command, target=self.path, headers=headers, body=self._read_body())
        try:
            reply = self.server.answer(request)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                if name not in _OF_ONE_HOP:
                    self.send_header(name, value)
            length = (
                reply.headers.get("content-length", "0") if self.command == "HEAD" else str(len(reply.body))
            )
            if reply.status != http.HTTPStatus.NO_CONTENT:
                self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(reply.body[: reply.cut_at] if self.command != "HEAD" else b"")
            self.wfile.flush()
        except OSError:
            self.close_connection = True
            return
        self.close_connection |= reply.cut_at is not None

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any  # noqa: N815  # http.server's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


def _pass_on(request: Request, forward: Forward) -> Reply:
    return forward(request)


def cut(reply: Reply, at: int) -> Reply:
    """Return the reply as it comes over a connection that breaks after so many bytes of the body."""
    return replace(reply, cut_at=at)


@contextmanager
def running_relay() -> Iterator[Relay]:
    """Run a relay in a thread of this process."""
    with Relay() as relay:
        thread = threading.Thread(target=relay.serve_forever, daemon=True)
        thread.start()
        try:
            yield relay
        finally:
            relay.shutdown()
            thread.join()

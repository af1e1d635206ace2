"""A receiver of callbacks: a real HTTP server that answers as a test tells it to."""

import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WAIT_S = 15.0


@dataclass
class Received:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers with `answers` in turn, the last of them for ever; `before` is called first."""

    url: str
    answers: list[int] = field(default_factory=lambda: [204])
    before: Callable[[], None] = lambda: None
    received: list[Received] = field(default_factory=list)

    def wait_for(self, count: int) -> list[Received]:
        deadline = time.monotonic() + WAIT_S
        while len(self.received) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(self.received) >= count, f"{len(self.received)} of {count} requests came"
        return self.received


def self_signed(folder: Path, host: str) -> Path:
    """A certificate for `host` and its key, in one file."""
    file, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    named = ["-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}"]
    subprocess.run([*command, *named, "-keyout", key, "-out", file], check=True, capture_output=True)
    file.write_text(file.read_text() + key.read_text())
    return file


@contextmanager
def running_receiver(certificate: Path | None = None) -> Iterator[Receiver]:
    """A receiver on this machine; with a certificate it speaks TLS as localhost."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status = receiver.answers.pop(0) if len(receiver.answers) > 1 else receiver.answers[0]
            receiver.received.append(Received(self.path, headers, body))
            receiver.before()
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{receiver.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a test looks at what was received."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}")
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            receiver.url = f"https://localhost:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield receiver
        server.shutdown()
        thread.join()

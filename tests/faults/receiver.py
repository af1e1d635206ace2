"""A receiver of webhooks: an HTTP server that keeps what it is sent."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Receiver:
    """The received messages by job."""

    url: str = ""
    events: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # job -> (message's id, type)
    refusing: int = 0  # so many of the next ones are answered 503

    def ends_told(self, job_id: str) -> set[str]:
        """Return the messages about the job's end; the same message may have come twice."""
        return {message for message, kind in self.events.get(job_id, []) if kind.endswith("export.finished")}


@contextmanager
def running_receiver() -> Iterator[Receiver]:
    """Listen on the loopback until the block ends."""
    receiver, lock = Receiver(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            with lock:
                refused, receiver.refusing = receiver.refusing > 0, max(0, receiver.refusing - 1)
                if not refused:
                    told = receiver.events.setdefault(body["data"]["job"], [])
                    told.append((self.headers["webhook-id"], body["type"]))
            self.send_response(503 if refused else 204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}/told"
    thread = threading.Thread(target=server.serve_forever, name="receiver", daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)

"""An S3 server that fails on request: `python -m tests.faults.s3 PORT FOLDER REDIS_PORT`."""

import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from pydantic import BaseModel, ConfigDict
from werkzeug.serving import WSGIRequestHandler, run_simple

from jobs.errors import JobNotFound, StoreUnavailable
from jobs.ids import JobId, is_job_id
from jobs.model import JobState
from jobs.stores.redis_store import RedisJobStore, connect

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

ORDER = "order.json"
REQUESTS = "requests.jsonl"


class Order(BaseModel):
    """An order to fail: how, and at which requests."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: int | None = None  # answer with this error
    code: str = ""  # S3's word for it
    damage: bool = False  # change a byte of what is being stored
    delay_s: float = 0.0
    methods: tuple[str, ...] = ("GET", "PUT", "POST", "HEAD", "DELETE")
    path: str = ""  # a part of it
    times: int = 1_000_000  # after so many it is over


class Standing(BaseModel):
    """The role of an attempt towards its job when it wrote."""

    attempt: int | None = None
    held: bool | None = None  # whether it had its job; None where nobody could say
    remaining_s: float = 0.0  # of its lease, if it was held; less than 0 where it had ended


class Request(Standing):
    """One request that was let through."""

    method: str
    path: str
    query: str
    status: int
    at: float

    @property
    def stores(self) -> bool:
        """True if an object exists because of it."""
        if not 200 <= self.status < 300:
            return False
        completes = self.method == "POST" and "uploadId" in self.query
        return completes or (self.method == "PUT" and "partNumber" not in self.query)


class Door:
    """Intercepts the requests to the real application."""

    def __init__(self, folder: Path, jobs: RedisJobStore) -> None:
        """Take orders from `folder`."""
        self._jobs = jobs
        self._app = DomainDispatcherApplication(create_backend_app)
        self._folder = folder
        self._followed: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
        order = self._order(environ["REQUEST_METHOD"], environ["PATH_INFO"])
        if order is not None:
            time.sleep(order.delay_s)
            if order.status is not None:
                return _refuse(order.status, order.code, environ, start)
            if order.damage:
                environ["wsgi.input"] = _damaged(environ)
        standing = self._standing(environ)
        answer: Iterable[bytes] = self._app(environ, self._noting(environ, start, standing))
        return answer

    def _standing(self, environ: "WSGIEnvironment") -> "Standing":
        """Return the writer's role, as it is before the request is carried out."""
        found = re.search(r"app/attempt-(\d+)", environ.get("HTTP_USER_AGENT", ""))
        job_id = next(filter(is_job_id, environ["PATH_INFO"].split("/")), None)
        if environ["REQUEST_METHOD"] not in ("PUT", "POST") or found is None or job_id is None:
            return Standing()
        attempt = int(found[1])
        try:
            job, now = self._jobs.get(JobId(job_id)), self._jobs.now()
        except (StoreUnavailable, JobNotFound):
            return Standing(attempt=attempt)
        held = job.state is JobState.RUNNING and job.attempt == attempt and job.lease is not None
        remaining = (job.lease.until - now).total_seconds() if job.lease else 0.0
        return Standing(attempt=attempt, held=held, remaining_s=remaining)

    def _order(self, method: str, path: str) -> Order | None:
        try:
            text = (self._folder / ORDER).read_text()
        except FileNotFoundError:
            return None
        order = Order.model_validate_json(text)
        with self._lock:
            if method not in order.methods or order.path not in path or "moto-api" in path:
                return None
            self._followed[text] = self._followed.get(text, 0) + 1
            return order if self._followed[text] <= order.times else None

    def _noting(
        self, environ: "WSGIEnvironment", start: "StartResponse", standing: "Standing"
    ) -> "StartResponse":
        def noting(status: str, headers: list[tuple[str, str]], *rest: object) -> Callable[[bytes], object]:
            request = Request(
                method=environ["REQUEST_METHOD"],
                path=environ["PATH_INFO"],
                query=environ.get("QUERY_STRING", ""),
                status=int(status.split()[0]),
                at=time.time(),
                **standing.model_dump(),
            )
            with self._lock, (self._folder / REQUESTS).open("a") as file:
                file.write(request.model_dump_json() + "\n")
            return start(status, headers)

        return noting


def _refuse(status: int, code: str, environ: "WSGIEnvironment", start: "StartResponse") -> Iterable[bytes]:
    if length := int(environ.get("CONTENT_LENGTH") or 0):
        environ["wsgi.input"].read(length)
    start(f"{status} {code}", [("Content-Type", "application/xml"), ("Connection", "close")])
    return [f"<Error><Code>{code}</Code><Message>as ordered</Message></Error>".encode()]


def _damaged(environ: "WSGIEnvironment") -> BytesIO:
    body = bytearray(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
    if body:
        body[len(body) // 2] ^= 1
    return BytesIO(body)


def requests_in(folder: Path) -> list[Request]:
    """Return the requests that were let through, in the order of their answers."""
    path = folder / REQUESTS
    lines = path.read_text().splitlines() if path.exists() else []
    return [Request.model_validate(json.loads(line)) for line in lines]


class _Silent(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"

    def log(self, type: str, message: str, *args: object) -> None:
        """Requests are noted by the door."""


if __name__ == "__main__":
    store = RedisJobStore(connect(f"redis://127.0.0.1:{sys.argv[3]}/0"))
    door = Door(Path(sys.argv[2]), store)
    run_simple("127.0.0.1", int(sys.argv[1]), door, threaded=True, request_handler=_Silent)

"""Requests that break off, contradict themselves, come from strangers, or from pages of other sites."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from exporter.errors import InvalidSpec
from jobs.control.control import JobControl
from jobs.fleet.roster import MemoryRoster
from jobs.model import JobState
from jobs.queue import MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.dependencies import Backend
from service.gate.connections import BoundedConnection
from service.planning import plan
from service.settings import ServiceSettings
from tests.hostile.kinds import hostile
from tests.jobs.factories import CONFIG_TEXT, make_job
from tests.service.conftest import serving
from tests.service.gate.sockets import answer_on, answer_to, connected, head, status_of

SECRET = "0123456789abcdef"
KEYS = {"keys": [{"name": "own", "secret": SECRET, "scopes": ["admin"]}]}
BEARER = f"Authorization: Bearer {SECRET}"
COOKIE = f"Cookie: slipway_key={SECRET}"
LARGE = 8_000_000


class Impatient(BoundedConnection):
    """A connection that waits for a head only briefly."""

    head_seconds = 0.5


class Api:
    """The API behind a real socket, with one key and one queued job."""

    def __init__(self) -> None:
        self.store = MemoryJobStore()
        self.job = make_job()
        self.store.add(self.job, CONFIG_TEXT)
        self.url = ""

    @contextmanager
    def serve(self, folder: Path) -> Iterator["Api"]:
        keys = folder / "keys.json"
        keys.write_text(json.dumps(KEYS))
        settings = ServiceSettings(api_keys_file=keys, max_bodies_bytes=LARGE)
        backend = Backend(JobControl(self.store, MemoryQueue(), plan), MemoryRoster(), self.store)
        with serving(create_app(settings, backend), http=Impatient) as self.url:
            yield self

    def state(self) -> JobState:
        return self.store.get(self.job.id).state

    def ask(self, method: str, path: str, *fields: str, length: int | None = 0, body: bytes = b"") -> object:
        """Send a request, and raise InvalidSpec if the answer refuses it."""
        answer = answer_to(self.url, head(method, path, "Connection: close", *fields, length=length) + body)
        if status_of(answer) >= 400:
            raise InvalidSpec(answer.decode())
        return answer

    @property
    def cancel(self) -> str:
        return f"/exports/{self.job.id}/cancel"


@hostile("a cancel whose body breaks off", reader="POST /exports/<id>/cancel", ends="unread")
def _(folder: Path) -> None:
    with Api().serve(folder) as api:
        with connected(api.url) as connection:
            connection.sendall(head("POST", api.cancel, BEARER, length=44) + b"{")
        time.sleep(0.3)
        assert api.state() is JobState.QUEUED


@hostile("a promotion without a body", reader="POST /models/<name>/promote")
def _(folder: Path) -> object:
    with Api().serve(folder) as api:
        return api.ask("POST", "/models/m/promote", BEARER)


@hostile("lengths of a body that disagree", reader="POST /exports")
def _(folder: Path) -> object:
    with Api().serve(folder) as api:
        return api.ask(
            "POST", "/exports", BEARER, "Content-Length: 2", length=None, body=b"4\r\n{  }\r\n0\r\n\r\n"
        )


@hostile("a body of 8 MB without a key", reader="POST /exports")
def _(folder: Path) -> object:
    with Api().serve(folder) as api:
        return api.ask("POST", "/exports", length=LARGE)


@hostile("a body of 8 MB for the sign-in", reader="POST /sign-in")
def _(folder: Path) -> object:
    with Api().serve(folder) as api:
        return api.ask("POST", "/sign-in", length=LARGE)


@hostile("bodies that together fill the memory", reader="POST /exports")
def _(folder: Path) -> object:
    with Api().serve(folder) as api, ExitStack() as open_ones:
        for _ in range(3):
            connection = open_ones.enter_context(connected(api.url))
            connection.sendall(head("POST", "/exports", BEARER, length=LARGE // 3) + b" " * (LARGE // 3 - 1))
        time.sleep(0.5)
        return api.ask("POST", "/exports", BEARER, length=1000, body=b" " * 1000)


@hostile("a cancel that another site's page asks for", reader="POST /exports/<id>/cancel")
def _(folder: Path) -> object:
    with Api().serve(folder) as api:
        return api.ask("POST", api.cancel, COOKIE, "Sec-Fetch-Site: cross-site")


@hostile(
    "a cancel by another site's page, with Basic credentials that a browser adds",
    reader="POST /exports/<id>/cancel",
)
def _(folder: Path) -> object:
    with Api().serve(folder) as api:
        fields = ("Origin: http://elsewhere.example", "Authorization: Basic eDp5")
        return api.ask("POST", api.cancel, COOKIE, *fields)


@hostile("a head that never ends", reader="connection", ends="unread")
def _(folder: Path) -> None:
    with Api().serve(folder) as api, connected(api.url) as connection:
        connection.sendall(b"GET /exports HTTP/1.1\r\nX: ")
        begun = time.monotonic()
        answer_on(connection)
        assert time.monotonic() - begun < 5

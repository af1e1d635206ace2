"""Requests to the API whose bodies are deep, huge or no text: answered with 4xx, and with no 5xx."""

import json
from pathlib import Path

from starlette.testclient import TestClient

from exporter.errors import InvalidSpec
from exporter.storage.uris import FileRoots
from jobs.control.control import JobControl
from jobs.fleet.roster import MemoryRoster
from jobs.queue import MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.dependencies import Backend
from service.planning import plan
from service.settings import ServiceSettings
from tests.hostile.kinds import hostile
from tests.service.requests import FIXTURES, export_request

BODY = "POST /exports"
LONGEST = 16_384  # bytes of an answer that refuses


def posted(body: str | bytes) -> object:
    """InvalidSpec stands for an answer that refuses; what is no answer is an error of its own."""
    folders = FileRoots(roots=(FIXTURES, Path("/out")))
    store = MemoryJobStore()
    backend = Backend(JobControl(store, MemoryQueue(), plan, folders=folders), MemoryRoster(), store)
    with TestClient(create_app(ServiceSettings(), backend)) as client:
        answer = client.post("/exports", content=body, headers={"content-type": "application/json"})
    assert answer.status_code < 500, answer.text
    assert len(answer.content) <= LONGEST, len(answer.content)
    if answer.status_code >= 400:
        assert answer.json()["code"] != "internal_error"
        raise InvalidSpec(answer.text)
    return answer.json()


def with_raw(field: str, raw: str) -> str:
    body = json.dumps({**export_request(), field: "PLACE"})
    return body.replace('"PLACE"', raw)


@hostile("JSON nested 100,000 deep", reader=BODY)
def _(folder: Path) -> object:
    return posted('{"config": ' + "[" * 100_000)


@hostile("a number of 5,000 digits", reader=BODY)
def _(folder: Path) -> object:
    return posted(with_raw("max_batch_size", "9" * 5000))


@hostile("a size of 2^62", reader=BODY)
def _(folder: Path) -> object:
    return posted(with_raw("max_batch_size", str(1 << 62)))


@hostile("NaN and Infinity where numbers belong", reader=BODY)
def _(folder: Path) -> object:
    return posted(with_raw("max_batch_size", "NaN"))


@hostile("half a character in the config's text", reader=BODY)
def _(folder: Path) -> object:
    return posted(with_raw("config", '"\\ud800"'))


@hostile("a body that is no UTF-8", reader=BODY)
def _(folder: Path) -> object:
    return posted(b'{"config": "\xff\xfe"}')


@hostile("a URI with NUL", reader=BODY)
def _(folder: Path) -> object:
    return posted(with_raw("checkpoint_uri", '"/a\\u0000b"'))


@hostile("a URI that turns the direction of text", reader=BODY)
def _(folder: Path) -> object:
    return posted(with_raw("output_uri", '"s3://b/\\u202etxt.exe"'))


@hostile("a path that climbs with ../ for the config", reader=BODY)
def _(folder: Path) -> object:
    climbing = f"{FIXTURES}/../../../../../../../../proc/self/environ"
    return posted(json.dumps(export_request(config=None, config_uri=climbing)))


@hostile("a callback to the metadata of the cloud", reader=BODY)
def _(folder: Path) -> object:
    return posted(with_raw("callback_url", '"http://169.254.169.254/latest/meta-data"'))

"""HEAD is answered wherever GET is, with the same status and headers, and no body."""

import json

import httpx
import pytest
from starlette.testclient import TestClient

from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from tests.architecture.tree import ROOT
from tests.jobs.factories import CONFIG_TEXT, make_job
from tests.service.test_download import published as published

PATHS = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
HOOKS = ("/triggers", "/subscriptions", "/deliveries")  # served where there is a Redis
GET = sorted(path for path, methods in PATHS.items() if "get" in methods and not path.startswith(HOOKS))


@pytest.mark.parametrize("path", [path for path in GET if not path.endswith("/events")])
def test_a_call_that_is_read_has_a_head(client: TestClient, published: Job, path: str) -> None:
    known = {"job_id": published.id, "tower": "user", "path": "user/pipeline.config", "name": "ranker"}
    url = path.format(**known)
    got, head = client.get(url), client.head(url)
    assert head.status_code == got.status_code and head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.headers.get("ETag") == got.headers.get("ETag")


def test_the_head_of_a_file_tells_its_size(client: TestClient, published: Job) -> None:
    url = f"/exports/{published.id}/files/user/aoti/aoti_model.pt2"
    assert client.head(url).headers["content-length"] == str(len(client.get(url).content))


def test_the_head_of_a_stream_that_goes_on_ends_at_once(url: str, store: MemoryJobStore) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    with httpx.Client(base_url=url, timeout=5) as http:
        answers = [http.head(f"/exports/{job.id}/events"), http.head(f"/exports/{job.id}")]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].headers["content-type"].startswith("text/event-stream")


def test_what_cannot_be_read_has_no_head(client: TestClient) -> None:
    refused = client.head("/exports/plan")
    assert refused.status_code == client.get("/exports/plan").status_code
    allowed = client.put("/exports", json={}).headers["Allow"]
    assert "HEAD" in allowed.split(", ")

"""Following a job over HTTP."""

import json
import threading
import time
import urllib.request
from collections.abc import Callable

import pytest
from starlette.testclient import TestClient

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.diagnostics.logs import LogPart
from jobs.lease.leases import claim
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_event, make_job, make_outcome

Event = dict[str, str]


def events_of(text: str) -> list[Event]:
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]


@pytest.fixture
def job(store: MemoryJobStore) -> Job:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    return job


def in_background(action: Callable[[], object]) -> None:
    threading.Thread(target=action, daemon=True).start()


def test_every_change_is_an_event_until_the_end(url: str, store: MemoryJobStore, job: Job) -> None:
    def work() -> None:
        holding = claim(store, job.id, worker="w", length=MINUTE)
        assert holding is not None
        time.sleep(0.7)
        holding.renew([make_event()])
        time.sleep(0.7)
        holding.finish(make_outcome())

    in_background(work)
    with urllib.request.urlopen(f"{url}/exports/{job.id}/events", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        *jobs, end = events_of(stream.read().decode())
    assert {event["event"] for event in jobs} == {"job"}
    revisions = [int(event["id"]) for event in jobs]
    assert revisions == sorted(set(revisions)) and revisions[-1] == store.get(job.id).revision
    assert json.loads(jobs[-1]["data"])["state"] == "succeeded"
    assert end == {"event": "end", "data": '"succeeded"'}


def test_what_the_reader_has_is_not_told_again(client: TestClient, store: MemoryJobStore) -> None:
    job = make_job(JobState.FAILED)
    store.add(job, CONFIG_TEXT)
    for last_event_id, told in [("1", 1), ("0", 2), ("nonsense", 2), ("9" * 5000, 2)]:
        answer = client.get(f"/exports/{job.id}/events", headers={"Last-Event-ID": last_event_id})
        assert len(events_of(answer.text)) == told


def test_a_deleted_job_ends_its_events(client: TestClient, store: MemoryJobStore, job: Job) -> None:
    threading.Timer(0.3, lambda: store.remove(job)).start()
    assert events_of(client.get(f"/exports/{job.id}/events").text)[-1]["data"] == '"deleted"'


def test_an_unknown_job_has_no_events(client: TestClient) -> None:
    answer = client.get(f"/exports/{'0' * 26}/events")
    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


def test_a_log_is_read_by_tower_and_stage(client: TestClient, backend: Backend, job: Job) -> None:
    tracing = LogPart(tower=TowerName.USER, stage=Stage.TRACE, lines=("guards",))
    compiling = LogPart(tower=TowerName.ITEM, stage=Stage.COMPILE, lines=("g++", "done"))
    backend.logs.append(job.id, [compiling, tracing])
    parts = client.get(f"/exports/{job.id}/log").json()["parts"]
    assert [part["lines"] for part in parts] == [["guards"], ["g++", "done"]]
    one = client.get(f"/exports/{job.id}/log", params={"tower": "item", "stage": "compile"}).json()
    assert [part["lines"] for part in one["parts"]] == [["g++", "done"]]
    assert client.get(f"/exports/{'0' * 26}/log").status_code == 404

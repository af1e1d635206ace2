"""Both clients against a real socket."""

import threading
import time

import pytest

from exporter.spec import TowerName
from jobs.diagnostics.logs import LogPart
from jobs.lease.leases import claim
from jobs.model import Job, JobState
from jobs.request import ExportRequest, Priority
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from slipway.client import Client, RequestRefused, ServiceUnreachable
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_event, make_failure, make_job, make_outcome
from tests.service.json_server import serving_json
from tests.service.requests import export_request


@pytest.fixture
def client(url: str) -> Client:
    return Client(url)


def end_in_background(store: MemoryJobStore, job: Job) -> None:
    def work() -> None:
        holding = claim(store, job.id, worker="w", length=MINUTE)
        assert holding is not None
        time.sleep(0.6)
        holding.renew([make_event()])
        time.sleep(0.6)
        holding.finish(make_outcome(failed={TowerName.ITEM: make_failure()}))

    threading.Thread(target=work, daemon=True).start()


def test_a_request_is_sent_with_its_options_and_its_key(client: Client) -> None:
    request = ExportRequest.model_validate(export_request(priority="high", model="ranker"))
    first, second = (client.submit(request, key="k-1") for _ in range(2))
    assert first == second
    assert (first.priority, first.model) == (Priority.HIGH, "ranker")


def test_a_job_is_followed_retried_and_deleted(client: Client, store: MemoryJobStore) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    end_in_background(store, job)
    seen = [each.state for each in client.events(job.id)]
    assert seen[-1] is JobState.PARTIALLY_SUCCEEDED and len(seen) > 1
    assert client.retry(job.id).retry_of == job.id
    client.delete(job.id)
    with pytest.raises(RequestRefused) as refused:
        list(client.events(job.id))
    assert refused.value.code == "job_not_found"


def test_a_log_is_read(client: Client, store: MemoryJobStore, backend: Backend) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    backend.logs.append(job.id, [LogPart(lines=("hello",))])
    assert client.log(job.id).parts[0].lines == ("hello",)


def test_a_failures_bundle_is_fetched(client: Client, store: MemoryJobStore, backend: Backend) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    backend.bundles.put(job.id, TowerName.ITEM, b"PK")
    assert client.bundle(job.id, TowerName.ITEM) == b"PK"
    with pytest.raises(RequestRefused) as refused:
        client.bundle(job.id)
    assert refused.value.code == "no_bundle"


def test_another_programs_answer_is_none_of_ours() -> None:
    with (
        serving_json({"hello": "world"}) as url,
        pytest.raises(ServiceUnreachable, match="none of Slipway's"),
    ):
        Client(url.removesuffix("/jwks.json")).ready()


def test_events_that_end_before_their_job_are_an_error() -> None:
    with (
        serving_json({"hello": "world"}) as url,
        pytest.raises(ServiceUnreachable, match="ended the events of job 0{26} before"),
    ):
        list(Client(url.removesuffix("/jwks.json")).events("0" * 26))

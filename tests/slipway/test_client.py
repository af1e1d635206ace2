"""The client by its public name, against the application on a real socket and the API's description."""

import asyncio
import inspect
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from exporter.samples.entry import SamplesEntry
from exporter.spec import TowerName as OurTowerName
from jobs.control.releases import MemoryPointers
from jobs.diagnostics.logs import LogPart as OurLogPart
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from slipway import client as library
from slipway.client import (
    AsyncClient,
    Client,
    DownloadFailed,
    ExportRequest,
    JobState,
    JobView,
    Manifest,
    PlanRequest,
    Priority,
    RequestRefused,
    ServiceUnreachable,
    SlipwayError,
    Stage,
    TowerName,
)
from slipway.rest.events import EventReader
from slipway.rest.received import files_of
from tests.architecture.tree import ROOT
from tests.jobs.factories import CONFIG_TEXT, make_entry, make_job
from tests.jobs.factories import make_manifest as our_manifest
from tests.service.conftest import backend, store, url
from tests.service.json_server import serving_json
from tests.service.requests import export_request
from tests.service.test_artifacts import make_manifest, publish
from tests.service.test_client import end_in_background

__all__ = ["backend", "store", "url"]

SCHEMAS = json.loads((ROOT / "docs" / "openapi.json").read_text())["components"]["schemas"]
ENUMS = {"JobState", "TowerState", "TowerName", "Stage", "Mode", "Device", "Priority"}
ENUMS |= {"EventType", "DeliveryState"}
RECORDS = {"JobView", "TowerProgress", "Failure", "JobList", "JobLog", "LogPart", "ModelList", "Release"}
RECORDS |= {"ReleasedTower", "Readiness", "Problem", "ExportRequest", "PlanRequest", "Try"}
RECORDS |= {"Trigger", "TriggerView", "TriggerList", "TriggerTrial", "DeliveryView", "DeliveryList"}
RECORDS |= {"SubscriptionRequest", "SubscriptionView", "SubscriptionMade", "SubscriptionList"}


def request_of(priority: str | None = None, model: str | None = None) -> ExportRequest:
    wanted = export_request()
    return ExportRequest(
        config=str(wanted["config"]),
        checkpoint_uri=str(wanted["checkpoint_uri"]),
        output_uri=str(wanted["output_uri"]),
        item_input_uri=str(wanted["item_input_uri"]),
        sample_input_uri=str(wanted["sample_input_uri"]),
        priority=priority,
        model=model,
    )


def test_a_file_is_whatever_the_manifest_names_by_path_size_and_digest() -> None:
    """Downloads find every file of an artifact without a class for each part of its manifest."""
    tower = make_entry(OurTowerName.ITEM)
    ref = tower.package
    others = [ref.model_copy(update={"path": f"item/{name}"}) for name in ("fg.json", "samples", "rows-0")]
    samples = SamplesEntry(file=others[1], cases=())
    tower = tower.model_copy(update={"files": (others[0],), "samples": samples})
    manifest = our_manifest("job", tower)
    found = files_of(Manifest.read(json.loads(manifest.model_dump_json())), ["item"])
    assert {each.path for each in found} == {each.path for each in tower.all_files}
    assert {each.sha256 for each in found} == {ref.sha256}


@pytest.mark.parametrize(
    "answer", ["{}", '{"towers": 1}', '{"towers": [{"name": "item", "package": {"path": 1, "sha256": 2}}]}']
)
def test_a_manifest_of_another_form_is_refused(answer: str) -> None:
    with pytest.raises(DownloadFailed, match="none that this version reads"):
        files_of(Manifest.read(json.loads(answer)), ["item"])


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_record_has_the_fields_of_the_api(name: str) -> None:
    known = {each.name for each in fields(getattr(library, name))}
    assert known == set(SCHEMAS[name]["properties"])


def test_a_worker_has_the_fields_of_the_api() -> None:
    assert {each.name for each in fields(library.Worker)} == set(SCHEMAS["WorkerNotice"]["properties"])


@pytest.mark.parametrize("name", sorted(ENUMS))
def test_a_name_has_the_values_of_the_api(name: str) -> None:
    assert [each.value for each in getattr(library, name)] == SCHEMAS[name]["enum"]


def test_a_job_is_submitted_followed_and_stopped(url: str) -> None:
    slipway = Client(url)
    job = slipway.submit(request_of(priority="high", model="ranker"), key="nightly-7")
    assert slipway.submit(request_of(priority="high", model="ranker"), key="nightly-7") == job
    assert (job.priority, job.model, job.spec.mode) == (Priority.HIGH, "ranker", "unified")
    assert slipway.get_if_changed(job) is job
    changes: Iterator[JobView] = slipway.events(job.id)
    assert next(changes) == job
    assert slipway.cancel(job.id).state is JobState.CANCELLED
    assert [each.state for each in changes] == [JobState.CANCELLED]
    assert slipway.page(limit=1).jobs[0].id == job.id


def test_a_job_is_followed_to_its_end_and_retried(url: str, store: MemoryJobStore) -> None:
    slipway, job = Client(url), make_job()
    store.add(job, CONFIG_TEXT)
    end_in_background(store, job)
    *_, last = slipway.events(job.id)
    assert last.state is JobState.PARTIALLY_SUCCEEDED and last.state.is_final
    failed = {tower.name: tower.failure for tower in last.towers}[TowerName.ITEM]
    assert failed is not None and failed.code and failed.message
    assert slipway.retry(job.id).retry_of == job.id
    slipway.delete(job.id)
    with pytest.raises(RequestRefused, match="there is no job"):
        slipway.get(job.id)


def test_a_plan_names_the_inputs(url: str) -> None:
    plan = Client(url).plan(PlanRequest(config=str(export_request()["config"]), towers=["item"]))
    assert plan.towers[0].name == "item" and plan["towers"][0]["inputs"][0].name


def test_a_models_releases_are_moved(
    url: str, store: MemoryJobStore, backend: Backend, tmp_path: Path
) -> None:
    jobs = [publish(store, str(tmp_path)) for _ in range(2)]
    (tmp_path / "manifest.json").write_text(make_manifest(jobs[0]).model_dump_json())
    assert isinstance(backend.pointers, MemoryPointers)
    backend.pointers.released["ranker"] = [job.id for job in jobs]
    slipway = Client(url)
    assert slipway.models().models == ("ranker",)
    slipway.promote("ranker", jobs[0].id)
    assert slipway.promote("ranker", jobs[1].id).job_id == jobs[1].id
    assert slipway.roll_back("ranker") == slipway.promoted("ranker")
    assert slipway.latest("ranker").job_id == max(job.id for job in jobs)
    with pytest.raises(RequestRefused, match="with these labels"):
        slipway.latest("ranker", {"region": "eu: west"})
    manifest = slipway.manifest(jobs[0].id)
    assert (manifest.family, manifest["job_id"]) == ("hstu_match", jobs[0].id)
    with pytest.raises(AttributeError, match="nonsense"):
        _ = manifest.nonsense


def test_logs_and_bundles_are_fetched(url: str, store: MemoryJobStore, backend: Backend) -> None:
    slipway, job = Client(url), make_job()
    store.add(job, CONFIG_TEXT)
    backend.logs.append(job.id, [OurLogPart(lines=("hello",))])
    backend.bundles.put(job.id, OurTowerName.ITEM, b"PK")
    assert slipway.log(job.id).parts[0].lines == ("hello",)
    assert slipway.log(job.id, stage=Stage.TRACE).parts == ()
    assert slipway.bundle(job.id, TowerName.ITEM) == b"PK"


def test_a_refusal_has_a_code_and_says_what_to_do(url: str) -> None:
    with pytest.raises(SlipwayError) as refused:
        Client(url).get("nonsense")
    assert isinstance(refused.value, RequestRefused) and not refused.value.retryable
    assert (refused.value.code, refused.value.status) == ("job_not_found", 404)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://x", "nonsense", ""])
def test_what_does_not_answer_is_said(url: str) -> None:
    with pytest.raises(ServiceUnreachable, match="does not answer") as silent:
        Client(url).ready()
    assert silent.value.retryable


@pytest.mark.parametrize("answer", [{"hello": "world"}, [], {"models": 1, "next_cursor": None}])
def test_another_programs_answer_is_none_of_ours(answer: object) -> None:
    with serving_json(answer) as url, pytest.raises(ServiceUnreachable, match="none of Slipway's"):
        Client(url.removesuffix("/jwks.json")).models()


@pytest.mark.parametrize("data", ["{", "[]", "{}", None])
def test_an_event_that_cannot_be_read_is_none_of_ours(data: str | None) -> None:
    reader = EventReader("http://here")
    for line in ("event: job", *([] if data is None else [f"data: {data}"])):
        reader.take(line)
    with pytest.raises(ServiceUnreachable, match="none of Slipway's"):
        reader.take("")


def test_the_clients_have_the_same_calls() -> None:
    def calls(client: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(call).parameters)
            for name, call in vars(client).items()
            if not name.startswith("_")
        }

    assert calls(AsyncClient) == calls(Client)


def test_the_asynchronous_client_waits_without_blocking(url: str, store: MemoryJobStore) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    end_in_background(store, job)

    async def follow() -> list[JobState]:
        async with AsyncClient(url) as client:
            states = [each.state async for each in client.events(job.id)]
            assert (await client.get(job.id)).state is states[-1]
            assert (await client.page(limit=1)).jobs[0].id == job.id
            with pytest.raises(SlipwayError, match="there is no job"):
                await client.cancel("0" * 26)
            return states

    assert asyncio.run(follow())[-1] is JobState.PARTIALLY_SUCCEEDED

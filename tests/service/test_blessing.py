"""Promotion of releases that a gate has judged, over HTTP and by the clients."""

import asyncio
import logging

import pytest
from starlette.testclient import TestClient

from exporter.reports.release_report import Finding, Verdict
from jobs.control.releases import MemoryPointers
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from slipway.client import AsyncClient, Client, RequestRefused
from tests.jobs.factories import AS_GOOD, CONFIG_TEXT, WORSE, make_gated_job, make_report


@pytest.fixture
def released(store: MemoryJobStore, backend: Backend) -> Job:
    """A release of `ranker` that its gate does not bless."""
    return release(store, backend, WORSE)


def release(store: MemoryJobStore, backend: Backend, finding: Finding) -> Job:
    job = make_gated_job(make_report(AS_GOOD, finding))
    store.add(job, CONFIG_TEXT)
    assert isinstance(backend.pointers, MemoryPointers)
    backend.pointers.released.setdefault("ranker", []).append(job.id)
    return job


def test_a_release_that_is_not_blessed_is_refused_with_the_figures(client: TestClient, released: Job) -> None:
    for job_id in (released.id, None):
        answer = client.post("/models/ranker/promote", json={"job_id": job_id})
        assert (answer.status_code, answer.json()["code"]) == (409, "release_not_blessed")
        assert "auc of ctr failed (0.61, baseline 0.7, allowed 0.69)" in answer.json()["detail"]
        assert "force" in answer.json()["hint"]
    assert client.get("/models/ranker/promoted").status_code == 404


def test_a_release_whose_quality_is_not_judged_is_refused_with_the_reason(
    client: TestClient, store: MemoryJobStore, backend: Backend
) -> None:
    reason = "quality is not judged: a custom family says nothing of labels"
    unjudged = Finding(measure="quality", subject="model", verdict=Verdict.TOO_FEW, detail=reason)
    report = make_report(AS_GOOD, unjudged).model_copy(update={"blessed": False})
    job = make_gated_job(report)
    store.add(job, CONFIG_TEXT)
    answer = client.post("/models/ranker/promote", json={"job_id": job.id})
    assert (answer.status_code, answer.json()["code"]) == (409, "release_not_blessed")
    assert f"quality of model too few: {reason}" in answer.json()["detail"]
    forced = client.post("/models/ranker/promote", json={"job_id": job.id, "force": True})
    assert (forced.status_code, forced.json()["blessed"]) == (200, False)


def test_force_promotes_it_and_the_audit_log_has_the_figures(
    client: TestClient, released: Job, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="slipway.audit"):
        answer = client.post("/models/ranker/promote", json={"job_id": released.id, "force": True})
    assert (answer.status_code, answer.json()["blessed"]) == (200, False)
    (line,) = [record.msg for record in caplog.records if record.name == "slipway.audit"]
    assert isinstance(line, dict)
    assert (line["who"], line["action"]) == ("anyone", "promote by force")
    assert line["subject"] == f"ranker to {released.id}"
    assert "auc of ctr failed (0.61" in line["objections"]
    assert client.get("/models/ranker/promoted").json()["job_id"] == released.id


def test_a_blessed_release_is_promoted_and_its_figures_are_shown(
    client: TestClient, store: MemoryJobStore, backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    job = release(store, backend, AS_GOOD)
    with caplog.at_level(logging.INFO, logger="slipway.audit"):
        promoted = client.post("/models/ranker/promote", json={"job_id": None, "force": True}).json()
    assert promoted["blessed"] is True
    assert [record.msg["action"] for record in caplog.records if isinstance(record.msg, dict)] == ["promote"]
    latest = client.get("/models/ranker/latest").json()
    assert [each["verdict"] for each in latest["verdicts"][0]["findings"]] == ["passed", "passed"]
    assert client.get(f"/exports/{job.id}").json()["verdicts"][0]["findings"][0]["value"] == 0.8


def test_rolling_back_asks_no_gate(client: TestClient, store: MemoryJobStore, backend: Backend) -> None:
    bad, good = release(store, backend, WORSE), release(store, backend, AS_GOOD)
    client.post("/models/ranker/promote", json={"job_id": bad.id, "force": True})
    client.post("/models/ranker/promote", json={"job_id": good.id})
    assert client.post("/models/ranker/roll-back").json()["job_id"] == bad.id


async def promote_with_async_client(url: str) -> bool | None:
    async with AsyncClient(url) as client:
        return (await client.promote("ranker", force=True)).blessed


def test_the_clients_promote_with_and_without_force(url: str, released: Job) -> None:
    with pytest.raises(RequestRefused, match="not blessed") as refused:
        Client(url).promote("ranker", released.id)
    assert refused.value.code == "release_not_blessed"
    assert Client(url).promote("ranker", released.id, force=True).job_id == released.id
    assert asyncio.run(promote_with_async_client(url)) is False


@pytest.mark.parametrize("force", [1, "true", None])
def test_force_is_true_or_false_and_nothing_like_it(client: TestClient, released: Job, force: object) -> None:
    answer = client.post("/models/ranker/promote", json={"job_id": released.id, "force": force})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")

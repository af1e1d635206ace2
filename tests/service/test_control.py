"""Retry, delete, idempotency keys and artifacts that exist already, over HTTP."""

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from exporter.outcome import ExportOutcome
from exporter.spec import TowerName
from jobs.control.idempotency import AnswerKey, StoredAnswer
from jobs.lease.leases import claim
from jobs.model import JobState
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_failure, make_job, make_outcome
from tests.service.requests import export_request

KEY = {"Idempotency-Key": "k-1"}


def finish(store: MemoryJobStore, job_id: str, outcome: ExportOutcome) -> None:
    (job,) = [job for job in store.page(limit=9).jobs if job.id == job_id]
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    holding.finish(outcome)


def test_a_retry_is_a_new_job_for_the_failed_tower(client: TestClient, store: MemoryJobStore) -> None:
    first = client.post("/exports", json=export_request(model="ranker", labels={"run": "7"})).json()
    finish(store, first["id"], make_outcome(failed={TowerName.ITEM: make_failure()}))
    answer = client.post(f"/exports/{first['id']}/retry")
    again = answer.json()
    assert (answer.status_code, answer.headers["Location"]) == (202, f"/exports/{again['id']}")
    assert (again["retry_of"], again["spec"]["towers"]) == (first["id"], ["item"])
    assert (again["model"], again["labels"]) == ("ranker", {"run": "7"})


def test_a_job_without_failures_is_not_retried(client: TestClient) -> None:
    job = client.post("/exports", json=export_request()).json()
    answer = client.post(f"/exports/{job['id']}/retry")
    assert (answer.status_code, answer.json()["code"]) == (409, "job_not_retryable")


def test_a_finished_job_is_deleted(client: TestClient, store: MemoryJobStore) -> None:
    job = make_job(JobState.FAILED)
    store.add(job, CONFIG_TEXT)
    assert client.delete(f"/exports/{job.id}").status_code == 204
    assert client.get(f"/exports/{job.id}").status_code == 404


def test_an_unfinished_job_is_not_deleted(client: TestClient) -> None:
    job = client.post("/exports", json=export_request()).json()
    answer = client.delete(f"/exports/{job['id']}")
    assert (answer.status_code, answer.json()["code"]) == (409, "job_not_finished")


def test_a_repeated_request_with_its_key_starts_one_job(client: TestClient, store: MemoryJobStore) -> None:
    first, second = (client.post("/exports", json=export_request(), headers=KEY) for _ in range(2))
    assert second.content == first.content
    assert (second.status_code, second.headers["Location"]) == (202, first.headers["Location"])
    assert "Idempotency-Replayed" not in first.headers
    assert second.headers["Idempotency-Replayed"] == "true"
    assert len(store.page(limit=9).jobs) == 1


def test_a_key_is_good_for_one_request(client: TestClient) -> None:
    client.post("/exports", json=export_request(), headers=KEY)
    answer = client.post("/exports", json=export_request(output_uri="/elsewhere"), headers=KEY)
    assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


def test_a_request_that_is_still_being_answered_is_a_conflict(client: TestClient, backend: Backend) -> None:
    body = export_request()
    client.post("/exports", json=body, headers=KEY)
    own = AnswerKey("anyone", "k-1")
    kept = backend.answers._kept[own]  # type: ignore[attr-defined] # what Redis would hold
    backend.answers.keep(own, StoredAnswer(fingerprint=kept.fingerprint))
    answer = client.post("/exports", json=body, headers=KEY)
    assert (answer.status_code, answer.json()["code"]) == (409, "idempotency_key_in_flight")
    assert int(answer.headers["Retry-After"]) > 0


def test_a_failure_is_not_kept(client: TestClient) -> None:
    bad = export_request(config="nonsense {")
    assert client.post("/exports", json=bad, headers=KEY).status_code == 422
    assert client.post("/exports", json=export_request(), headers=KEY).status_code == 202


@pytest.mark.parametrize("key", ["", "with space", "x" * 256])
def test_a_key_is_printable(client: TestClient, key: str) -> None:
    answer = client.post("/exports", json=export_request(), headers={"Idempotency-Key": key})
    assert (answer.status_code, answer.json()["where"]) == (422, "Idempotency-Key")


def test_the_same_export_answers_with_the_finished_job(
    client: TestClient, store: MemoryJobStore, tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    first = client.post("/exports", json=export_request()).json()
    manifest = {"manifest_uri": str(tmp_path / "manifest.json")}
    finish(store, first["id"], make_outcome().model_copy(update=manifest))
    again = client.post("/exports", json=export_request())
    assert (again.status_code, again.json()["id"], again.json()["state"]) == (200, first["id"], "succeeded")
    forced = client.post("/exports", json={**export_request(), "force": True})
    assert (forced.status_code, forced.json()["id"] != first["id"]) == (202, True)

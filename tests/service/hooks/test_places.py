"""The URIs that a key's exports may read and write, however an export is started."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.ids import JobId
from jobs.lease.leases import update_job
from jobs.model import Job, Lease
from jobs.stores.job_store import JobRecords
from service.app import create_app
from service.dependencies import Backend
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from tests.jobs.factories import make_failure
from tests.service.hooks.events import rule, structured, training_event
from tests.service.requests import FIXTURES, export_request

OPEN, NARROW = "a-key-without-rules", "a-key-with-narrow-rules"
AS_OPEN, AS_NARROW = ({"Authorization": f"Bearer {secret}"} for secret in (OPEN, NARROW))


@pytest.fixture
def client(
    redis_url: str, redis_client: object, hook_settings: HookSettings, tmp_path: Path
) -> Iterator[TestClient]:
    rules = {"inputs": [f"{FIXTURES}/data", f"{FIXTURES}/hstu_match"], "outputs": ["s3://team"]}
    keys = [
        {"name": "open", "secret": OPEN, "scopes": ["admin"]},
        {"name": "narrow", "secret": NARROW, "scopes": ["admin"], "uris": rules},
    ]
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": keys}))
    settings = ServiceSettings(
        redis_url=redis_url, hooks=hook_settings, api_keys_file=file, file_roots=(FIXTURES, Path("/out"))
    )
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


def refused(client: TestClient, headers: dict[str, str], **changes: object) -> str:
    answer = client.post("/exports", json=export_request(**changes), headers=headers)
    told = answer.json()
    assert (answer.status_code, told["code"]) == (403, "uri_not_allowed"), told
    where: str = told["where"]
    return where


def test_what_a_key_allows_is_taken(client: TestClient) -> None:
    body = export_request(output_uri="s3://team/models")
    assert client.post("/exports", json=body, headers=AS_NARROW).status_code == 202


@pytest.mark.parametrize("name", ["x[", "*", "what?", "[a]", "x[/%2e%2e"])
def test_a_sign_of_a_pattern_hides_no_climb(client: TestClient, name: str) -> None:
    """The sign would end the part of the path that is judged, if an output were a pattern."""
    climbing = f"{FIXTURES}/{name}/../../../outside/p"
    assert refused(client, AS_OPEN, output_uri=climbing) == "output_uri"
    assert refused(client, AS_OPEN, output_uri=f"file://{climbing}") == "output_uri"
    assert refused(client, AS_OPEN, checkpoint_uri=climbing) == "checkpoint_uri"
    assert refused(client, AS_OPEN, config=None, config_uri=climbing) == "config_uri"
    assert refused(client, AS_NARROW, output_uri="s3://team/x", checkpoint_uri=climbing) == "checkpoint_uri"
    assert client.get("/exports", headers=AS_OPEN).json()["jobs"] == []


@pytest.mark.parametrize("rows", ["[/../../../../secret/x.parquet", "*/../x.parquet"])
def test_rows_do_not_climb_behind_a_pattern(client: TestClient, rows: str) -> None:
    body = export_request(item_input_uri=f"{FIXTURES}/data/{rows}")
    answer = client.post("/exports", json=body, headers=AS_OPEN)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec"), answer.text


def test_the_key_s_rules_go_with_the_job(client: TestClient) -> None:
    body = export_request(output_uri="s3://team/models")
    made = client.post("/exports", json=body, headers=AS_NARROW).json()
    rules = _store(client).get(JobId(made["id"])).uris
    assert (rules.inputs, rules.outputs) == (
        (f"{FIXTURES}/data", f"{FIXTURES}/hstu_match"),
        ("s3://team",),
    )


def test_a_key_s_prefixes_bind_it(client: TestClient) -> None:
    assert refused(client, AS_NARROW) == "output_uri"
    elsewhere = str(FIXTURES / "mind" / "model.ckpt-11")
    assert refused(client, AS_NARROW, output_uri="s3://team/x", checkpoint_uri=elsewhere) == "checkpoint_uri"


def test_no_path_outside_of_the_folders_is_read_at_submit(client: TestClient) -> None:
    assert refused(client, AS_OPEN, config=None, config_uri="/etc/hostname") == "config_uri"
    assert (
        refused(client, AS_OPEN, config=None, config_uri=f"{FIXTURES}/../../../pyproject.toml")
        == "config_uri"
    )


def test_nor_for_a_plan(client: TestClient) -> None:
    answer = client.post("/exports/plan", json={"config_uri": "/etc/hostname"}, headers=AS_OPEN)
    assert (answer.status_code, answer.json()["code"]) == (403, "uri_not_allowed")
    inside = {"config_uri": str(FIXTURES / "hstu_match" / "pipeline.config")}
    assert client.post("/exports/plan", json=inside, headers=AS_OPEN).status_code == 200


def test_rows_that_the_config_names_are_judged(client: TestClient) -> None:
    text = (FIXTURES / "hstu_match" / "pipeline.config").read_text()
    hostile = 'train_input_path: "/etc/rows.parquet"\ndata_config { fg_mode: FG_NONE }\n'
    lines = [line for line in text.splitlines() if "train_input_path" not in line]
    body = {"config": hostile + "\n".join(lines), "sample_input_uri": None}
    assert refused(client, AS_OPEN, **body) == "sample_input_uri"


def test_a_retry_is_bound_by_the_key_that_asks_for_it(client: TestClient) -> None:
    made = client.post("/exports", json=export_request(), headers=AS_OPEN).json()
    failed = update_job(_store(client), JobId(made["id"]), _failed)
    answer = client.post(f"/exports/{failed.id}/retry", headers=AS_NARROW)
    assert (answer.status_code, answer.json()["code"]) == (403, "uri_not_allowed")
    assert client.post(f"/exports/{failed.id}/retry", headers=AS_OPEN).status_code == 202


def _store(client: TestClient) -> JobRecords:
    app = client.app
    assert isinstance(app, FastAPI)
    backend: Backend = app.state.backend
    return backend.jobs.store


def _failed(job: Job, now: datetime) -> Job:
    running = job.begin_attempt(Lease(worker="w", until=now), "cpu", now)
    return running.set_back(make_failure().model_copy(update={"retryable": False}), now)


def test_a_trigger_s_exports_are_bound_as_the_key_that_put_it(client: TestClient) -> None:
    assert client.put("/triggers/t", json=rule(), headers=AS_NARROW).json()["uris"]["outputs"] == [
        "s3://team"
    ]
    body, headers = structured(training_event())
    (start,) = client.post("/webhooks/training", content=body, headers=headers).json()["starts"]
    assert (start["job"], start["failure"]["code"]) == (None, "uri_not_allowed")
    trial = client.post("/triggers/t/test", json=training_event(), headers=AS_OPEN).json()
    assert trial["failure"]["code"] == "uri_not_allowed"


@pytest.mark.parametrize("step", ["..%2fother", "x/%252e%252e/%252e%252e/other", "..\\other", "a%00b"])
def test_an_event_does_not_lead_a_trigger_elsewhere(client: TestClient, step: str) -> None:
    put = client.put("/triggers/t", json=rule(output_uri="s3://team/models/{data.step}"), headers=AS_OPEN)
    assert put.status_code == 201, put.text
    body, headers = structured(training_event(step=step))
    (start,) = client.post("/webhooks/training", content=body, headers=headers).json()["starts"]
    assert (start["job"], start["failure"]["code"]) == (None, "trigger_unfilled")
    assert client.get("/exports", headers=AS_OPEN).json()["jobs"] == []


def test_a_trigger_keeps_no_credentials(client: TestClient) -> None:
    answer = client.put(
        "/triggers/t",
        json=rule(config_uri=None, config="x", output_uri="s3://a:planted@b/{id}"),
        headers=AS_OPEN,
    )
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_spec")
    assert "planted" not in answer.text


def test_credentials_are_refused_at_submit_and_not_repeated(client: TestClient) -> None:
    body = export_request(config=None, config_uri="https://user:planted@host/pipeline.config")
    answer = client.post("/exports", json=body, headers=AS_OPEN)
    assert (answer.status_code, answer.json()["where"]) == (422, "config_uri")
    assert "planted" not in answer.text
    assert client.get("/exports", headers=AS_OPEN).json()["jobs"] == []


@pytest.mark.parametrize(
    ("given", "roots"),
    [({}, None), ({"api_keys_file": Path("k")}, ()), ({"file_roots": "/a, /b"}, (Path("/a"), Path("/b")))],
)
def test_who_asks_for_keys_reads_no_paths_unless_told_so(given: dict[str, object], roots: object) -> None:
    assert ServiceSettings.model_validate(given).allowed_file_roots == roots

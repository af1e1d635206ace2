"""The REST calls about exports."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from jobs.model import JobState
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, make_job
from tests.service.requests import CONFIG, export_request


def submit(client: TestClient, **changes: str | int | None) -> str:
    answer = client.post("/exports", json=export_request(**changes))
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["id"]
    return job_id


def test_a_submitted_export_is_accepted_with_its_place(client: TestClient) -> None:
    answer = client.post("/exports", json=export_request())
    assert (answer.status_code, answer.json()["state"]) == (202, "queued")
    assert client.get(answer.headers["Location"]).json() == answer.json()


def test_the_towers_are_planned_at_submit(client: TestClient) -> None:
    towers = client.get(f"/exports/{submit(client)}").json()["towers"]
    assert [(tower["name"], tower["state"]) for tower in towers] == [("user", "waiting"), ("item", "waiting")]


def test_the_family_is_known_at_submit(client: TestClient) -> None:
    job = client.get(f"/exports/{submit(client)}").json()
    assert (job["family"], job["spec"]["family"]) == ("hstu_match", None)
    assert client.get("/exports").json()["jobs"][0]["family"] == "hstu_match"


def test_the_config_may_be_given_by_uri(client: TestClient) -> None:
    job = client.get(f"/exports/{submit(client, config=None, config_uri=str(CONFIG))}").json()
    assert job["spec"]["config_uri"] == str(CONFIG)


def test_a_misspelt_name_in_the_config_is_refused_with_its_line(client: TestClient) -> None:
    text = CONFIG.read_text().replace("feature_configs", "feature_konfigs", 1)
    answer = client.post("/exports", json=export_request(config=text))
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["code"]) == (422, "invalid_pipeline_config")
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "feature_konfigs" in line)
    assert problem["where"].startswith(f"config:{line}:")


def test_a_config_that_is_nowhere_is_refused(client: TestClient, tmp_path: Path) -> None:
    uri = str(tmp_path / "none.config")
    answer = client.post("/exports", json=export_request(config=None, config_uri=uri))
    assert (answer.status_code, answer.json()["code"]) == (422, "source_not_found")
    assert uri in answer.json()["detail"]


@pytest.mark.parametrize("field", ["config_uri", "checkpoint_uri", "item_input_uri", "sample_input_uri"])
def test_a_source_that_is_not_there_is_refused_at_once(
    client: TestClient, store: MemoryJobStore, field: str, tmp_path: Path
) -> None:
    (tmp_path / "something-else").touch()
    inline = {"config": None} if field == "config_uri" else {}
    request = export_request(**inline, **{field: f"{tmp_path}/none"})
    problem = client.post("/exports", json=request).json()
    assert (problem["status"], problem["code"], problem["where"]) == (422, "source_not_found", field)
    assert f"{tmp_path}/none" in problem["detail"]
    assert store.page(limit=1).jobs == ()


@pytest.mark.parametrize(
    ("changes", "where"),
    [({"checkpoint_uri": None}, "checkpoint_uri"), ({"rank": 2}, "rank"), ({"ranks": 99}, "ranks")],
)
def test_an_invalid_request_names_the_field(
    client: TestClient, changes: dict[str, str | int | None], where: str
) -> None:
    answer = client.post("/exports", json=export_request(**changes))
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["code"], problem["where"]) == (422, "invalid_request", where)


def test_what_is_no_json_is_an_invalid_request(client: TestClient) -> None:
    answer = client.post("/exports", content="{", headers={"content-type": "application/json"})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")

    assert answer.json()["detail"].startswith("the body is no JSON: Expecting property name")
    assert answer.json()["detail"].endswith("at character 1")


@pytest.mark.parametrize("media_type", ["application/x-www-form-urlencoded", "text/plain", None])
def test_a_body_that_does_not_say_that_it_is_json_is_told_to(
    client: TestClient, media_type: str | None
) -> None:
    headers = {"content-type": media_type} if media_type else {}
    answer = client.post("/exports", content=json.dumps(export_request()), headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert f"its Content-Type is {media_type or 'missing'}" in answer.json()["detail"]
    assert answer.json()["hint"] == "send the header `Content-Type: application/json`"


@pytest.mark.parametrize("target", [7, True, 1.5])
def test_a_target_of_another_type_is_an_invalid_request(client: TestClient, target: object) -> None:
    answer = client.post("/exports", json=export_request(target=target))
    assert (answer.status_code, answer.json()["where"].partition(".")[0]) == (422, "target")


def test_what_a_request_says_itself_comes_without_a_mark(client: TestClient) -> None:
    detail = client.post("/exports", json=export_request(towers=["item", "item"])).json()["detail"]
    assert detail == "`towers` names a tower twice"


@pytest.mark.parametrize("job_id", ["0" * 26, "nonsense"])
def test_an_unknown_job_is_not_found(client: TestClient, job_id: str) -> None:
    answer = client.get(f"/exports/{job_id}")
    assert (answer.status_code, answer.json()["code"]) == (404, "job_not_found")


def test_a_poller_is_told_when_nothing_changed(client: TestClient) -> None:
    url = f"/exports/{submit(client)}"
    tag = client.get(url).headers["ETag"]
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 304
    client.post(f"{url}/cancel")
    assert client.get(url, headers={"If-None-Match": tag}).json()["state"] == "cancelled"


def test_a_finished_job_cannot_be_cancelled(client: TestClient) -> None:
    url = f"/exports/{submit(client)}/cancel"
    assert client.post(url).json()["state"] == "cancelled"
    assert (client.post(url).status_code, client.post(url).json()["code"]) == (409, "job_finished")


def test_a_list_continues_at_its_cursor(client: TestClient, store: MemoryJobStore) -> None:
    for _ in range(3):
        store.add(make_job(), CONFIG_TEXT)
    first = client.get("/exports", params={"limit": 2}).json()
    second = client.get("/exports", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    ids = [job["id"] for job in first["jobs"] + second["jobs"]]
    assert (len(ids), ids, second["next_cursor"]) == (3, sorted(ids, reverse=True), None)


def test_a_list_may_show_one_state(client: TestClient, store: MemoryJobStore) -> None:
    store.add(make_job(), CONFIG_TEXT)
    store.add(make_job(JobState.FAILED), CONFIG_TEXT)
    jobs = client.get("/exports", params={"state": "failed"}).json()["jobs"]
    assert [job["state"] for job in jobs] == ["failed"]


def test_an_unknown_state_is_an_invalid_request(client: TestClient) -> None:
    assert client.get("/exports", params={"state": "lost"}).json()["where"] == "state"

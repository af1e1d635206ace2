"""Jobs that a team sees without having submitted them: by triggers, equal exports, repeated requests."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from jobs.ids import JobId
from service.app import create_app
from tests.service.hooks.events import rule, structured, training_event
from tests.service.requests import CONFIG, export_request
from tests.service.teams.sample import backend_of, bearer, publish, put_trigger

MINE, THEIRS = "adsteam", "feedteam"


@pytest.fixture
def request_of_mine(tmp_path: Path) -> dict[str, object]:
    """An export within the places of a team, whose sources exist."""
    for team in (MINE, THEIRS):
        folder = tmp_path / team / "in"
        (folder / "ckpt").mkdir(parents=True)
        (folder / "pipeline.config").write_text(CONFIG.read_text())
        for name in ("ckpt/.metadata", "items.parquet", "rows.parquet"):
            (folder / name).write_bytes(b"x")
    own = tmp_path / MINE
    return export_request(
        checkpoint_uri=f"{own}/in/ckpt",
        item_input_uri=f"{own}/in/items.parquet",
        sample_input_uri=f"{own}/in/rows.parquet",
        output_uri=f"{own}/out",
    )


def test_an_equal_export_with_another_team_s_config_does_not_stand_for_one_s_own(
    client: TestClient, request_of_mine: dict[str, object], tmp_path: Path
) -> None:
    theirs = {**request_of_mine, "config_uri": f"{tmp_path}/{THEIRS}/in/pipeline.config"}
    del theirs["config"]
    first = client.post("/exports", json=theirs, headers=bearer("everyone")).json()
    publish(backend_of(client).stores, JobId(first["id"]))
    again = client.post("/exports", json=request_of_mine, headers=bearer("everyone"))
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    own = client.post("/exports", json=request_of_mine, headers=bearer(MINE))
    assert (own.status_code, own.json()["id"] == first["id"]) == (202, False)
    assert THEIRS not in own.text


def test_an_equal_export_of_one_s_own_does(client: TestClient, request_of_mine: dict[str, object]) -> None:
    first = client.post("/exports", json=request_of_mine, headers=bearer("everyone")).json()
    publish(backend_of(client).stores, JobId(first["id"]))
    again = client.post("/exports", json=request_of_mine, headers=bearer(MINE))
    assert (again.status_code, again.json()["id"]) == (200, first["id"])


def test_a_key_whose_places_have_changed_is_not_answered_as_before(
    client: TestClient, request_of_mine: dict[str, object], tmp_path: Path
) -> None:
    repeated = {**bearer(MINE), "Idempotency-Key": "once"}
    first = client.post("/exports", json=request_of_mine, headers=repeated)
    replayed = client.post("/exports", json=request_of_mine, headers=repeated)
    assert (replayed.json(), "idempotency-replayed" in replayed.headers) == (first.json(), True)
    settings = client.app.state.settings  # type: ignore[attr-defined] # an application of ours
    keys = json.loads(settings.api_keys_file.read_text())
    keys["keys"][0]["uris"]["outputs"] = [f"{tmp_path}/{MINE}/elsewhere"]
    settings.api_keys_file.write_text(json.dumps(keys))
    with TestClient(create_app(settings)) as changed:
        answer = changed.post("/exports", json=request_of_mine, headers=repeated)
        assert (answer.status_code, first.json()["id"] in answer.text) == (422, False)


def test_what_a_trigger_starts_in_a_team_s_places_is_seen_by_the_team(
    client: TestClient, request_of_mine: dict[str, object], tmp_path: Path
) -> None:
    """The trigger itself is seen only if it can start nothing elsewhere."""
    own = {name: request_of_mine[name] for name in ("item_input_uri", "sample_input_uri")}
    body = rule(**own, output_uri=f"{tmp_path}/{MINE}/out/{{data.step}}")
    assert client.put("/triggers/bound", json=body, headers=bearer("chief")).status_code == 201
    put_trigger(backend_of(client), "free", body)
    event = training_event(checkpoint_uri=f"{tmp_path}/{MINE}/in/ckpt")
    content, signed = structured(event)
    starts = client.post("/webhooks/training", content=content, headers=signed).json()["starts"]
    assert [start["trigger"] for start in starts if start["job"]] == ["bound", "free"]
    for start in starts:
        seen = client.get(f"/exports/{start['job']}", headers=bearer(MINE))
        assert (seen.status_code, seen.json()["owner"]) == (200, f"trigger:{start['trigger']}")
        assert client.get(f"/exports/{start['job']}", headers=bearer(THEIRS)).status_code == 404
    names = [each["name"] for each in client.get("/triggers", headers=bearer(MINE)).json()["triggers"]]
    assert names == ["bound"]
    tried = [
        client.post(f"/triggers/{name}/test", json=event, headers=bearer(MINE)) for name in ("bound", "free")
    ]
    assert [answer.status_code for answer in tried] == [200, 404]


@pytest.mark.parametrize(
    ("name", "changed", "seen"),
    [
        ("only-inputs", {}, True),
        ("only-inputs", {"output_uri": "feedteam/out"}, True),
        ("only-inputs", {"checkpoint_uri": "feedteam/in/ckpt"}, False),
        ("only-outputs", {}, True),
        ("only-outputs", {"checkpoint_uri": "feedteam/in/ckpt"}, True),
        ("only-outputs", {"output_uri": "feedteam/out"}, False),
        ("nowhere", {}, False),
        ("chief", {"output_uri": "feedteam/out"}, True),
    ],
)
def test_what_a_key_does_not_bind_is_free(
    client: TestClient,
    request_of_mine: dict[str, object],
    tmp_path: Path,
    name: str,
    changed: dict[str, str],
    seen: bool,
) -> None:
    body = {**request_of_mine, **{field: f"{tmp_path}/{place}" for field, place in changed.items()}}
    job = client.post("/exports", json=body, headers=bearer("everyone")).json()["id"]
    assert client.get(f"/exports/{job}", headers=bearer(name)).status_code == (200 if seen else 404)
    listed = client.get("/exports", headers=bearer(name)).json()["jobs"]
    assert [each["id"] for each in listed] == ([job] if seen else [])

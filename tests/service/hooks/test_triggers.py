import pytest
from starlette.testclient import TestClient

from tests.service.hooks.events import rule, training_event


def test_a_trigger_is_put_shown_listed_and_deleted(client: TestClient) -> None:
    assert client.put("/triggers/nightly", json=rule()).status_code == 201
    again = client.put("/triggers/nightly", json={**rule(), "enabled": False})
    assert (again.status_code, again.json()["enabled"]) == (200, False)
    shown = client.get("/triggers/nightly").json()
    assert shown.pop("latest") == []
    assert shown == again.json()
    assert shown["created_at"] < shown["updated_at"]
    assert client.get("/triggers").json() == {"triggers": [shown], "next_cursor": None}
    assert client.delete("/triggers/nightly").status_code == 204
    for call in (client.get, client.delete):
        assert call("/triggers/nightly").json()["code"] == "trigger_not_found"


def test_triggers_are_paged_by_name(client: TestClient) -> None:
    for name in ("c", "a", "b"):
        client.put(f"/triggers/{name}", json=rule())
    first = client.get("/triggers", params={"limit": 2}).json()
    rest = client.get("/triggers", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [each["name"] for each in (*first["triggers"], *rest["triggers"])] == ["a", "b", "c"]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    ("template", "where"),
    [
        ({"checkpoint_uri": "{checkpoint}"}, "template.checkpoint_uri"),
        ({"output": "/out"}, "template.output"),
        ({"config_uri": "{data.config_uri}"}, "template"),  # and `config` is there already
        ({"max_batch_size": 1}, "template.max_batch_size"),
    ],
)
def test_a_template_is_checked_when_put(client: TestClient, template: dict[str, object], where: str) -> None:
    answer = client.put("/triggers/nightly", json=rule(**template))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_request")
    assert answer.json()["where"] == where


@pytest.mark.parametrize("name", ["Nightly", "a b", "-", "x" * 64])
def test_a_name_is_plain(client: TestClient, name: str) -> None:
    assert client.put(f"/triggers/{name}", json=rule()).status_code == 422


def test_a_trial_shows_the_request_and_starts_nothing(client: TestClient) -> None:
    client.put("/triggers/nightly", json=rule())
    trial = client.post("/triggers/nightly/test", json=training_event()).json()
    assert (trial["starts"], trial["towers"]) == (True, ["user", "item"])
    assert trial["request"]["output_uri"] == "/out/11"
    assert client.get("/exports").json()["jobs"] == []


def test_a_trial_says_what_does_not_fit(client: TestClient) -> None:
    client.put("/triggers/nightly", json=rule())
    trial = client.post("/triggers/nightly/test", json=training_event(model="dlrm", status="failed")).json()
    assert not trial["starts"]
    assert [misfit.split()[0] for misfit in trial["misfits"]] == ["data.model", "data.status"]


def test_a_trial_says_what_the_event_lacks(client: TestClient) -> None:
    client.put("/triggers/nightly", json=rule())
    trial = client.post("/triggers/nightly/test", json=training_event(step=None)).json()
    assert (trial["starts"], trial["failure"]["code"]) == (False, "trigger_unfilled")


def test_a_trial_says_why_the_export_would_be_refused(client: TestClient) -> None:
    client.put("/triggers/nightly", json=rule(config="nonsense {"))
    trial = client.post("/triggers/nightly/test", json=training_event()).json()
    assert (trial["starts"], trial["failure"]["code"]) == (False, "invalid_pipeline_config")
    assert trial["request"]["checkpoint_uri"].endswith("model.ckpt-11")

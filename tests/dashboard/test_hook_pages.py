"""The pages of webhooks on a real Redis: triggers, subscriptions, deliveries, and sending one again."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from jobs.hooks.deliveries import DeliveryState
from service.app import create_app
from service.hooks.backend import HookBackend
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from tests.dashboard.conftest import KEYS
from tests.dashboard.sample import NASTY
from tests.jobs.hooks.factories import SECRET
from tests.service.hooks.conftest import hook_settings, receiver, redis_client, redis_url
from tests.service.hooks.events import rule, structured, training_event
from tests.service.hooks.receiver import WAIT_S, Receiver
from tests.service.requests import export_request

__all__ = ["hook_settings", "receiver", "redis_client", "redis_url"]

URL = "https://example.com/hook"


@pytest.fixture
def app(redis_url: str, redis_client: object, hook_settings: HookSettings, tmp_path: Path) -> FastAPI:
    keys: list[dict[str, object]] = [
        {"name": "watcher", "scopes": ["read"], "secret": KEYS["watcher"]},
        {"name": "releaser", "scopes": ["admin"], "secret": KEYS["releaser"]},
        {
            "name": "bound",
            "scopes": ["submit"],
            "secret": KEYS["trainer"],
            "uris": {"outputs": ["s3://b/own"]},
        },
    ]
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": keys}))
    return create_app(
        ServiceSettings(redis_url=redis_url, hooks=hook_settings, api_keys_file=file, file_roots=(Path("/"),))
    )


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    """An admin's client."""
    with TestClient(app, raise_server_exceptions=False) as client:
        client.headers["authorization"] = f"Bearer {KEYS['releaser']}"
        yield client


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {KEYS[name]}"}


def hooks_of(client: TestClient) -> HookBackend:
    app = client.app
    assert isinstance(app, FastAPI)
    hooks: HookBackend = app.state.hooks
    return hooks


def text_of(client: TestClient, path: str, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200, answer.text
    return " ".join(answer.text.split())


def cancelled(client: TestClient, callback: str | None = None) -> str:
    """A job whose receivers are told that it was cancelled."""
    job_id: str = client.post("/exports", json=export_request(callback_url=callback)).json()["id"]
    assert client.post(f"/exports/{job_id}/cancel").status_code == 202
    return job_id


def delivery_of(client: TestClient, job_id: str, state: DeliveryState) -> str:
    """The id of the job's delivery, as soon as it has come to this state."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = hooks_of(client).outbox.page(limit=1, job=job_id, state=state, before=None).deliveries
        if found:
            return found[0].id
        time.sleep(0.02)
    raise AssertionError(f"no delivery of {job_id} is {state}")


def test_triggers_are_listed_and_shown_with_what_they_did(client: TestClient) -> None:
    assert client.put("/triggers/nightly", json=rule(labels={"run": "{id}"})).status_code == 201
    event, headers = structured(training_event())
    client.post("/webhooks/training", content=event, headers=headers)
    listed = text_of(client, "/pages/triggers")
    assert 'href="/pages/triggers/nightly"' in listed and "<code>hstu*</code>" in listed
    shown = text_of(client, "/pages/triggers/nightly")
    assert "/out/{data.step}" in shown and "given inline" in shown and "run-7" in shown
    assert 'class="pill succeeded">started' in shown and 'href="/jobs/' in shown


def test_what_an_event_did_not_start_says_why(client: TestClient) -> None:
    client.put("/triggers/nightly", json=rule())
    event, headers = structured(training_event(checkpoint_uri=None, source=NASTY))
    client.post("/webhooks/training", content=event, headers=headers)
    shown = text_of(client, "/pages/triggers/nightly")
    assert "trigger_unfilled" in shown and "refused" in shown
    assert NASTY not in shown


def test_a_subscription_is_shown_without_its_secret(client: TestClient) -> None:
    made = client.post(
        "/subscriptions", json={"url": URL, "secret": SECRET, "events": ["export.finished"]}
    ).json()
    for name in ("releaser", "watcher"):
        text = text_of(client, "/pages/subscriptions", **bearer(name))
        assert URL in text and made["id"] in text and "export.finished" in text
        assert "whsec_" not in text and SECRET.removeprefix("whsec_") not in text


def test_no_page_of_webhooks_shows_a_secret(client: TestClient, receiver: Receiver) -> None:
    client.post("/subscriptions", json={"url": receiver.url, "secret": SECRET})
    client.put("/triggers/nightly", json=rule(callback_url=URL))
    delivery = delivery_of(client, cancelled(client), DeliveryState.DELIVERED)
    pages = ("triggers", "triggers/nightly", "subscriptions", "deliveries", f"deliveries/{delivery}")
    for page in pages:
        assert SECRET.removeprefix("whsec_") not in text_of(client, f"/pages/{page}")


def test_a_delivery_is_shown_with_its_tries_and_sent_again(client: TestClient, receiver: Receiver) -> None:
    receiver.answers = [500, 503, 500]
    job_id = cancelled(client, f"{receiver.url}/hook")
    delivery = delivery_of(client, job_id, DeliveryState.GIVEN_UP)
    listed = text_of(client, f"/pages/deliveries?job={job_id}")
    assert f'href="/pages/deliveries/{delivery}"' in listed and "given up" in listed and "5 tries" in listed
    page = f"/pages/deliveries/{delivery}"
    shown = text_of(client, page)
    assert shown.count("<td>500</td>") == 4 and shown.count("<td>503</td>") == 1
    assert "the last of 5 tries failed" in shown
    receiver.answers = [204]
    answer = client.post(f"{page}/send-again", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, page)
    assert delivery_of(client, job_id, DeliveryState.DELIVERED) == delivery
    assert "<td>204</td>" in text_of(client, page)


def test_deliveries_are_narrowed_to_a_state_and_paged(client: TestClient, receiver: Receiver) -> None:
    ids = [delivery_of(client, cancelled(client, receiver.url), DeliveryState.DELIVERED) for _ in range(3)]
    everything = text_of(client, "/pages/deliveries?state=delivered")
    assert [each in everything for each in ids] == [True] * 3
    assert "No delivery is given up" in text_of(client, "/pages/deliveries?state=given_up")
    older = text_of(client, f"/pages/deliveries?before={ids[1]}")
    assert [each in older for each in ids] == [True, False, False]


def test_only_an_admin_sends_again(client: TestClient, receiver: Receiver) -> None:
    job_id = cancelled(client, receiver.url)
    page = f"/pages/deliveries/{delivery_of(client, job_id, DeliveryState.DELIVERED)}"
    assert "Send again" not in text_of(client, page, **bearer("watcher"))
    assert "Send again" in text_of(client, page)
    for headers in (bearer("watcher"), {"origin": "http://elsewhere.example", "authorization": ""}):
        assert client.post(f"{page}/send-again", headers=headers).status_code in (401, 403)
    assert len(receiver.received) == 1


def test_another_site_cannot_send_again_in_a_reader_s_name(
    app: FastAPI, client: TestClient, receiver: Receiver
) -> None:
    page = (
        f"/pages/deliveries/{delivery_of(client, cancelled(client, receiver.url), DeliveryState.DELIVERED)}"
    )
    with_cookie = {"cookie": f"slipway_key={KEYS['releaser']}", "authorization": ""}
    for foreign in ({"origin": "http://elsewhere.example"}, {"sec-fetch-site": "cross-site"}):
        answer = client.post(f"{page}/send-again", headers={**with_cookie, **foreign})
        assert (answer.status_code, "cross_site_request" in answer.text) == (403, True)
    assert len(receiver.received) == 1
    own = {"sec-fetch-site": "same-origin", "origin": "http://testserver"}
    sent = client.post(f"{page}/send-again", headers={**with_cookie, **own}, follow_redirects=False)
    assert sent.status_code == 303
    receiver.wait_for(2)


def test_a_delivery_whose_subscription_is_gone_is_refused_on_a_page(
    client: TestClient, receiver: Receiver
) -> None:
    made = client.post("/subscriptions", json={"url": receiver.url}).json()
    delivery = delivery_of(client, cancelled(client), DeliveryState.DELIVERED)
    client.delete(f"/subscriptions/{made['id']}")
    answer = client.post(f"/pages/deliveries/{delivery}/send-again")
    assert (answer.status_code, "delivery_unsendable" in answer.text) == (409, True)
    assert answer.headers["content-type"].startswith("text/html")


def test_a_bound_key_sees_none_of_it(client: TestClient, receiver: Receiver) -> None:
    client.post("/subscriptions", json={"url": receiver.url})
    client.put("/triggers/nightly", json=rule())
    delivery = delivery_of(client, cancelled(client), DeliveryState.DELIVERED)
    own = bearer("trainer")
    assert "nightly" not in text_of(client, "/pages/triggers", **own)
    assert "none of the subscriptions" in text_of(client, "/pages/subscriptions", **own)
    assert delivery not in text_of(client, "/pages/deliveries", **own)
    for path in ("triggers/nightly", f"deliveries/{delivery}"):
        assert client.get(f"/pages/{path}", headers=own).status_code == 404


@pytest.mark.parametrize("page", ["triggers", "subscriptions", "deliveries"])
def test_a_page_without_anything_says_what_would_be_there(client: TestClient, page: str) -> None:
    assert 'class="empty"' in text_of(client, f"/pages/{page}")

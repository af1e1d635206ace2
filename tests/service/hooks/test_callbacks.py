"""A change of a job reaches its receiver through the service's own senders."""

import json
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis
from standardwebhooks import Webhook
from starlette.testclient import TestClient

from jobs.lease.leases import claim
from jobs.stores.redis_store import RedisJobStore
from service.hooks.dispatcher import SOURCE
from tests.jobs.factories import make_outcome
from tests.jobs.hooks.factories import SECRET
from tests.service.hooks.conftest import MakeClient
from tests.service.hooks.receiver import WAIT_S, Received, Receiver
from tests.service.requests import export_request


@pytest.fixture
def store(redis_client: redis.Redis) -> RedisJobStore:
    return RedisJobStore(redis_client)


def _submit(client: TestClient, receiver: Receiver | None = None) -> str:
    callback = f"{receiver.url}/hook" if receiver else None
    answer = client.post("/exports", json=export_request(callback_url=callback))
    assert answer.status_code == 202, answer.text
    job_id: str = answer.json()["id"]
    return job_id


def _run(store: RedisJobStore, job_id: str) -> None:
    """Change the record of a job as a worker does when it succeeds."""
    holding = claim(store, store.get(job_id).id, worker="w1", length=timedelta(minutes=1))  # type: ignore[arg-type] # ids of tests
    assert holding is not None
    holding.finish(make_outcome())


def _deliveries(
    client: TestClient, job_id: str, settled: Callable[[dict[str, object]], bool]
) -> list[dict[str, object]]:
    """Return the job's deliveries as soon as all of them fulfil `settled`."""
    deadline = time.monotonic() + WAIT_S
    found: list[dict[str, object]] = []
    while not found or not all(settled(each) for each in found):
        assert time.monotonic() < deadline, f"not settled: {found}"
        time.sleep(0.05)
        found = client.get("/deliveries", params={"job": job_id}).json()["deliveries"]
    return found


def _ended(delivery: dict[str, object]) -> bool:
    return delivery["state"] != "waiting"


def _event(received: Received) -> dict[str, object]:
    told: dict[str, object] = Webhook(SECRET).verify(received.body, received.headers)
    return told


def test_a_job_s_callback_gets_signed_cloud_events(
    client: TestClient, receiver: Receiver, store: RedisJobStore
) -> None:
    job_id = _submit(client, receiver)
    _run(store, job_id)
    events = [_event(each) for each in receiver.wait_for(4)]
    assert sorted(str(event["type"]) for event in events) == [
        "export.finished",
        "export.started",
        "tower.finished",
        "tower.finished",
    ]
    finished = next(event for event in events if event["type"] == "export.finished")
    assert finished["specversion"] == "1.0"
    assert (finished["source"], finished["subject"]) == (SOURCE, job_id)
    assert finished["data"]["state"] == "succeeded"  # type: ignore[index] # JSON of our own making
    assert receiver.received[0].headers["content-type"] == "application/cloudevents+json"
    assert receiver.received[0].path == "/hook"


def test_a_receiver_that_fails_twice_is_told_once(
    client: TestClient, receiver: Receiver, store: RedisJobStore
) -> None:
    receiver.answers = [500, 503, 204]
    job_id = _submit(client, receiver)
    client.post(f"/exports/{job_id}/cancel")
    (delivery,) = _deliveries(client, job_id, _ended)
    assert (delivery["state"], delivery["attempts"], delivery["last_status"]) == ("delivered", 3, 204)
    tries = delivery["tries"]
    assert isinstance(tries, list)
    assert [each["status"] for each in tries] == [500, 503, 204]
    time.sleep(0.3)
    assert len({each.headers["webhook-id"] for each in receiver.wait_for(3)}) == 1
    assert len(receiver.received) == 3
    assert len({each.body for each in receiver.received}) == 1


def test_a_receiver_that_never_accepts_is_given_up(client: TestClient, receiver: Receiver) -> None:
    receiver.answers = [302]
    job_id = _submit(client, receiver)
    client.post(f"/exports/{job_id}/cancel")
    (delivery,) = _deliveries(client, job_id, _ended)
    assert (delivery["state"], delivery["attempts"]) == ("given_up", 5)
    assert "not followed" in str(delivery["last_error"])


def test_410_ends_a_job_s_callback(client: TestClient, receiver: Receiver, store: RedisJobStore) -> None:
    receiver.answers = [410]
    job_id = _submit(client, receiver)
    holding = claim(store, store.get(job_id).id, worker="w1", length=timedelta(minutes=1))  # type: ignore[arg-type] # ids of tests
    assert holding is not None
    _deliveries(client, job_id, _ended)
    holding.finish(make_outcome())
    time.sleep(0.3)
    (delivery,) = _deliveries(client, job_id, _ended)
    assert (delivery["state"], delivery["last_status"]) == ("dropped", 410)
    assert len(receiver.received) == 1


def test_410_ends_a_subscription(client: TestClient, receiver: Receiver) -> None:
    receiver.answers = [410]
    made = client.post("/subscriptions", json={"url": receiver.url}).json()
    client.post(f"/exports/{_submit(client)}/cancel")
    receiver.wait_for(1)
    deadline = time.monotonic() + WAIT_S
    while client.get(f"/subscriptions/{made['id']}").status_code == 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert client.get(f"/subscriptions/{made['id']}").json()["code"] == "subscription_not_found"
    (delivery,) = client.get("/deliveries").json()["deliveries"]
    replay = client.post(f"/deliveries/{delivery['id']}/replay")
    assert (replay.status_code, replay.json()["code"]) == (409, "delivery_unsendable")


def test_a_deleted_subscription_ends_what_is_under_way(make_client: MakeClient, receiver: Receiver) -> None:
    receiver.answers = [500]
    with make_client(callback_pauses=(timedelta(seconds=0.5),) * 5) as client:
        made = client.post("/subscriptions", json={"url": receiver.url}).json()
        job_id = _submit(client)
        client.post(f"/exports/{job_id}/cancel")
        receiver.wait_for(1)
        assert client.delete(f"/subscriptions/{made['id']}").status_code == 204
        (delivery,) = _deliveries(client, job_id, _ended)
    assert (delivery["state"], delivery["attempts"]) == ("dropped", 1)


def test_subscribers_are_told_of_every_job_by_their_own_secret(
    client: TestClient, receiver: Receiver
) -> None:
    body = {"url": receiver.url, "events": ["export.finished"]}
    made = client.post("/subscriptions", json=body).json()
    client.post(f"/exports/{_submit(client)}/cancel")
    (received,) = receiver.wait_for(1)
    told = Webhook(made["secret"]).verify(received.body, received.headers)
    assert (told["type"], told["data"]["state"]) == ("export.finished", "cancelled")


def test_a_delivery_is_sent_again_by_hand(client: TestClient, receiver: Receiver) -> None:
    job_id = _submit(client, receiver)
    client.post(f"/exports/{job_id}/cancel")
    (delivery,) = _deliveries(client, job_id, _ended)
    replay = client.post(f"/deliveries/{delivery['id']}/replay")
    assert (replay.status_code, replay.json()["state"]) == (202, "waiting")
    first, second = receiver.wait_for(2)
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == delivery["id"]
    (delivery,) = _deliveries(client, job_id, _ended)
    assert delivery["attempts"] == 2


def test_an_address_in_disguise_is_refused_when_connecting(
    make_client: MakeClient, receiver: Receiver
) -> None:
    """A name may resolve to any address later: the address that is connected to counts."""
    named = receiver.url.replace("127.0.0.1", str(127 << 24 | 1))
    with make_client(callback_networks=()) as client:
        job_id = client.post("/exports", json=export_request(callback_url=named)).json()["id"]
        client.post(f"/exports/{job_id}/cancel")
        (delivery,) = _deliveries(client, job_id, _ended)
    assert receiver.received == []
    assert (delivery["state"], delivery["attempts"]) == ("given_up", 1)
    assert "not an address that callbacks may reach" in str(delivery["reason"])


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/hook",
        "http://localhost:8080/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[fe80::1]/",
        "https://example.com:65599/",
    ],
)
def test_a_callback_to_the_inside_is_refused_at_submit(make_client: MakeClient, url: str) -> None:
    with make_client(callback_networks=()) as client:
        answer = client.post("/exports", json=export_request(callback_url=url))
        assert (answer.status_code, answer.json()["code"]) == (422, "callback_refused")
        assert client.post("/subscriptions", json={"url": url}).json()["code"] == "callback_refused"


def test_a_callback_that_could_not_be_signed_is_refused_at_submit(make_client: MakeClient) -> None:
    with make_client(callback_secrets=()) as client:
        answer = client.post("/exports", json=export_request(callback_url="https://example.com/"))
    assert (answer.status_code, answer.json()["code"]) == (422, "callback_refused")
    assert "SLIPWAY_CALLBACK_SECRETS" in answer.json()["hint"]


def test_two_services_send_an_event_once(make_client: MakeClient, receiver: Receiver) -> None:
    with make_client() as one, make_client() as other:
        jobs = [_submit(one, receiver) for _ in range(10)]
        for job_id in jobs:
            other.post(f"/exports/{job_id}/cancel")
        receiver.wait_for(10)
        time.sleep(0.3)
    subjects = sorted(str(json.loads(each.body)["subject"]) for each in receiver.received)
    assert subjects == sorted(jobs)

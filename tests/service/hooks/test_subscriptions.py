import pytest
from starlette.testclient import TestClient

from tests.jobs.hooks.factories import SECRET

URL = "https://example.com/hook"


def test_the_secret_is_shown_once(client: TestClient) -> None:
    made = client.post("/subscriptions", json={"url": URL})
    assert made.status_code == 201
    assert made.json()["secret"].startswith("whsec_")
    assert made.json()["events"] == ["export.finished", "export.started", "tower.finished"]
    shown = client.get(f"/subscriptions/{made.json()['id']}").json()
    assert shown == {name: value for name, value in made.json().items() if name != "secret"}


def test_a_subscription_is_changed_and_deleted(client: TestClient) -> None:
    made = client.post("/subscriptions", json={"url": URL, "secret": SECRET}).json()
    assert made["secret"] == SECRET
    path = f"/subscriptions/{made['id']}"
    changed = client.put(path, json={"url": f"{URL}/2", "events": ["export.finished"]}).json()
    assert (changed["url"], changed["events"]) == (f"{URL}/2", ["export.finished"])
    assert client.delete(path).status_code == 204
    for call in (client.get, client.delete):
        assert call(path).json()["code"] == "subscription_not_found"


def test_subscriptions_are_paged(client: TestClient) -> None:
    made = [client.post("/subscriptions", json={"url": URL}).json()["id"] for _ in range(3)]
    first = client.get("/subscriptions", params={"limit": 2}).json()
    rest = client.get("/subscriptions", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    listed = [each["id"] for each in (*first["subscriptions"], *rest["subscriptions"])]
    assert (sorted(listed), rest["next_cursor"]) == (sorted(made), None)
    assert "secret" not in first["subscriptions"][0]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"url": "ftp://example.com/"},
        {"url": "https://"},
        {"url": "https://user:secret@example.com/"},
        {"url": "https://example.com:99999/"},
        {"url": "https://example.com/a b"},
        {"url": URL, "events": []},
        {"url": URL, "events": ["export.begun"]},
        {"url": URL, "secret": "short"},
        {"url": URL, "secret": "whsec_AAAA"},
    ],
)
def test_a_wrong_subscription_is_422(client: TestClient, body: dict[str, object]) -> None:
    assert client.post("/subscriptions", json=body).status_code == 422


def test_an_unknown_delivery_is_404(client: TestClient) -> None:
    for call, path in ((client.get, ""), (client.post, "/replay")):
        assert call(f"/deliveries/{'0' * 26}{path}").json()["code"] == "delivery_not_found"

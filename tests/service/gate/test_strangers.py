"""Requests without a valid key: their bodies are not read, unless their route is public."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from jobs.stores.memory_store import MemoryJobStore
from service.app import create_app
from service.dependencies import Backend
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from tests.jobs.factories import CONFIG_TEXT, make_job
from tests.service.conftest import serving
from tests.service.gate.sockets import answer_to, connected, head, status_of
from tests.service.gate.unsafe_calls import unsafe_calls
from tests.service.requests import export_request

SECRET = "0123456789abcdef"
KEY = f"Authorization: Bearer {SECRET}"
PUBLIC = ("/sign-in", "/webhooks/training")
LARGE = 8_000_000


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "a", "secret": SECRET, "scopes": ["admin"]}]}))
    return path


@contextmanager
def guarded(backend: Backend, keys: Path, **settings: int | HookSettings) -> Iterator[str]:
    app = create_app(ServiceSettings.model_validate({"api_keys_file": keys, **settings}), backend)
    with serving(app) as url:
        yield url


@pytest.mark.parametrize("fields", [(), ("Authorization: Bearer wrong",), ("Cookie: slipway_key=wrong",)])
def test_a_strangers_body_is_not_awaited(backend: Backend, keys: Path, fields: tuple[str, ...]) -> None:
    with guarded(backend, keys, guess_limit=0) as url:
        calls = unsafe_calls(create_app(ServiceSettings(api_keys_file=keys)))
        for method, path in calls:
            if path in (*PUBLIC, "/sign-out") or path.startswith(("/triggers", "/subscr", "/deliver")):
                continue  # without Redis the last three are no routes
            answer = answer_to(url, head(method, path, *fields, length=LARGE))
            assert status_of(answer) == 401, path
            assert b"connection: close" in answer.lower()


def test_a_body_for_no_route_is_not_awaited(backend: Backend, keys: Path) -> None:
    with guarded(backend, keys) as url:
        assert status_of(answer_to(url, head("POST", "/nowhere", length=LARGE))) == 404
        assert status_of(answer_to(url, head("POST", "/healthz", length=LARGE))) == 405


def test_a_stranger_with_a_large_body_reads_why_it_is_refused(backend: Backend, keys: Path) -> None:
    with guarded(backend, keys) as url:
        for _ in range(5):
            answer = httpx.post(f"{url}/exports", content=b" " * LARGE)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


@pytest.mark.parametrize("path", PUBLIC)
def test_public_bodies_are_small(backend: Backend, keys: Path, path: str) -> None:
    with guarded(backend, keys, hooks=HookSettings(max_event_bytes=20_000)) as url:
        assert status_of(answer_to(url, head("POST", path, KEY, length=20_001))) == 413
        chunk = b"4e20\r\n" + b" " * 20_000 + b"\r\n"
        assert status_of(answer_to(url, head("POST", path, KEY), chunk, b"1\r\n \r\n")) == 413


def test_a_wrong_key_counts_once(backend: Backend, keys: Path) -> None:
    with guarded(backend, keys, guess_limit=2) as url:
        codes = [
            httpx.post(f"{url}/exports", json={}, headers={"Authorization": f"Bearer wrong {n}"}).status_code
            for n in range(3)
        ]
        assert codes == [401, 401, 429]


def test_a_page_is_no_guess(backend: Backend, keys: Path) -> None:
    with guarded(backend, keys, guess_limit=1) as url:
        wrong = {"Authorization": "Bearer wrong"}
        for _ in range(3):
            assert httpx.get(f"{url}/docs", headers=wrong).status_code == 200
        assert httpx.get(f"{url}/exports", headers=wrong).status_code == 401


def test_all_bodies_share_a_budget(backend: Backend, keys: Path) -> None:
    with guarded(backend, keys, max_bodies_bytes=100_000) as url, connected(url) as first:
        first.sendall(head("POST", "/exports", KEY, length=70_000) + b" " * 60_000)
        time.sleep(0.1)
        second = answer_to(url, head("POST", "/exports", KEY, length=60_000), b" " * 60_000)
        assert status_of(second) == 503
        assert b"too_many_bodies" in second and b"retry-after" in second.lower()
        first.close()
        time.sleep(0.1)
        third = httpx.post(
            f"{url}/exports",
            json=export_request(labels={"a": "b" * 200}),
            headers={"Authorization": KEY[15:]},
        )
        assert third.status_code == 202


def test_a_body_that_is_answered_gives_its_part_of_the_budget_back(backend: Backend, keys: Path) -> None:
    with guarded(backend, keys, max_bodies_bytes=100_000) as url:
        for _ in range(4):
            answer = httpx.post(f"{url}/exports", content=b" " * 60_000, headers={"Authorization": KEY[15:]})
            assert answer.status_code == 422


def test_a_stream_of_events_holds_nothing_of_the_budget(
    backend: Backend, store: MemoryJobStore, keys: Path
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    with guarded(backend, keys, max_bodies_bytes=100_000) as url, connected(url) as stream:
        stream.sendall(head("GET", f"/exports/{job.id}/events", KEY, length=70_000) + b" " * 70_000)
        assert status_of(stream.recv(65536)) == 200
        answer = httpx.post(f"{url}/exports", content=b" " * 60_000, headers={"Authorization": KEY[15:]})
        assert answer.status_code == 422


def test_one_key_cannot_fill_the_part_of_others(backend: Backend, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    secrets = {name: name * 16 for name in "ab"}
    listed = [{"name": name, "secret": secret, "scopes": ["read"]} for name, secret in secrets.items()]
    keys.write_text(json.dumps({"keys": listed}))
    bearer = {name: f"Bearer {secret}" for name, secret in secrets.items()}
    with guarded(backend, keys, max_bodies_bytes=100_000) as url, ExitStack() as opened:
        for _ in range(5):
            held = opened.enter_context(connected(url))
            held.sendall(head("POST", "/exports", f"Authorization: {bearer['a']}", length=20_000))
            held.sendall(b" " * 19_000)
        time.sleep(0.1)
        codes = [
            httpx.post(f"{url}/exports", content=b" " * 20_000, headers={"Authorization": bearer[name]})
            for name in "ab"
        ]
        assert [each.status_code for each in codes] == [503, 403]  # `b` may only read


def test_a_stranger_cannot_fill_the_part_of_callers_or_of_other_strangers(
    backend: Backend, keys: Path
) -> None:
    with guarded(backend, keys, max_bodies_bytes=100_000) as url, connected(url) as stranger:
        stranger.sendall(head("POST", "/sign-in", length=9_001) + b" " * 9_000)
        time.sleep(0.1)
        assert httpx.post(f"{url}/sign-in", data={"key": "x" * 1000}).status_code == 503
        with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as other:
            assert other.post(f"{url}/sign-in", data={"key": "x" * 1000}).status_code == 401
        answer = httpx.post(f"{url}/exports", content=b" " * 60_000, headers={"Authorization": KEY[15:]})
        assert answer.status_code == 422

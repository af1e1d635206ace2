"""The caller's address and scheme behind a proxy: uvicorn believes trusted proxies, and nobody else."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.service.conftest import serving

SECRET = "a-secret-that-is-right"
PROXY, STRANGER = "127.0.0.2", "127.0.0.3"  # addresses of this machine that connections may come from
LIMIT = 3


@pytest.fixture
def url(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The API with one trusted proxy, told as the chart tells it."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "own", "secret": SECRET, "scopes": ["read"]}]}))
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", f"10.0.0.0/8,{PROXY}/32")
    settings = ServiceSettings(api_keys_file=keys, guess_limit=LIMIT)
    with serving(create_app(settings, backend)) as url:
        yield url


def ask(url: str, source: str, secret: str, forwarded: str) -> int:
    """Return the status of the answer to a request from `source`, for whom `forwarded` names."""
    headers = {"Authorization": f"Bearer {secret}", "X-Forwarded-For": forwarded}
    with httpx.Client(transport=httpx.HTTPTransport(local_address=source)) as client:
        return client.get(f"{url}/exports", headers=headers).status_code


def test_callers_behind_a_proxy_are_counted_apart(url: str) -> None:
    guesses = [ask(url, PROXY, f"guess {number}", "203.0.113.7") for number in range(LIMIT + 1)]
    assert guesses == [401] * LIMIT + [429]
    assert ask(url, PROXY, SECRET, "203.0.113.7") == 429
    assert ask(url, PROXY, SECRET, "203.0.113.8") == 200
    assert ask(url, STRANGER, SECRET, "203.0.113.7") == 200  # it names another's address in vain


def test_who_is_no_proxy_cannot_choose_an_address(url: str) -> None:
    guesses = [ask(url, STRANGER, f"guess {number}", f"203.0.113.{number}") for number in range(LIMIT + 1)]
    assert guesses == [401] * LIMIT + [429]


@pytest.mark.parametrize("beyond", ["203.0.113.7", "203.0.113.7, 10.4.5.6"])
def test_what_a_caller_writes_before_the_proxys_entry_is_not_believed(url: str, beyond: str) -> None:
    guesses = [
        ask(url, PROXY, f"guess {number}", f"198.51.100.{number}, {beyond}") for number in range(LIMIT + 1)
    ]
    assert guesses == [401] * LIMIT + [429]


@pytest.mark.parametrize(
    ("source", "always", "marked"), [(PROXY, False, True), (STRANGER, False, False), (STRANGER, True, True)]
)
def test_the_cookie_is_for_https_where_the_browser_speaks_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, source: str, *, always: bool, marked: bool
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", PROXY)
    with (
        serving(create_app(ServiceSettings(secure_cookie=always), backend)) as url,
        httpx.Client(transport=httpx.HTTPTransport(local_address=source)) as client,
    ):
        answer = client.post(f"{url}/sign-in", data={"key": "any"}, headers={"X-Forwarded-Proto": "https"})
    assert answer.status_code == 303
    assert ("; Secure" in answer.headers["Set-Cookie"]) is marked


@pytest.mark.parametrize(
    "trusted", ["*", "0.0.0.0/0", "::/0", "10.1.2.3/16", "the-proxy", "10.0.0.1 10.0.0.2"]
)
def test_nobody_is_trusted_by_mistake(trusted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", trusted)
    with pytest.raises(ValidationError, match="FORWARDED_ALLOW_IPS"):
        ServiceSettings()

"""The API while the issuer of its tokens hangs: health, and callers with keys of our own, need no issuer."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.access.guard import Access
from service.access.keys import read_keys
from service.access.tokens import TokenCheck
from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.service.conftest import serving
from tests.service.issuer import ISSUER, IssuerServer, Signer, hang, publishing, serving_issuer

SECRET = "a-secret-of-our-own"
SIGNER = Signer("k1")
TOKENS = 60  # more than there are threads for routes
LONG_S = 120.0  # far more than any of this takes


@pytest.fixture
def issuer() -> Iterator[IssuerServer]:
    with serving_issuer(hang) as server:
        yield server


@pytest.fixture
def url(backend: Backend, issuer: IssuerServer, tmp_path: Path) -> Iterator[str]:
    """The API with a key of its own and the issuer, whose keys it has not fetched yet, and waits for long."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "own", "secret": SECRET, "scopes": ["read"]}]}))
    tokens = TokenCheck(issuer=ISSUER, audience="slipway", jwks_url=issuer.url, fetch_s=LONG_S)
    app = create_app(ServiceSettings(api_keys_file=keys), backend)
    app.state.access = Access(read_keys(keys), tokens, guess_limit=TOKENS // 2)
    with serving(app) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=url, timeout=LONG_S, limits=httpx.Limits(max_connections=2 * TOKENS)
    ) as client:
        yield client


def ask(client: httpx.Client, secret: str) -> httpx.Response:
    return client.get("/exports", headers={"Authorization": f"Bearer {secret}"})


def test_tokens_wait_for_one_fetch_and_nobody_else_waits_for_them(
    client: httpx.Client, issuer: IssuerServer
) -> None:
    ask(client, SECRET)
    invented = [Signer.invent(f"k{number}") for number in range(TOKENS)]
    with ThreadPoolExecutor(TOKENS) as pool:
        waiting = [pool.submit(ask, client, token) for token in invented]
        while not issuer.asked:
            time.sleep(0.01)
        for _ in range(3):
            assert client.get("/healthz").status_code == 200
            assert ask(client, SECRET).status_code == 200
        assert not any(each.done() for each in waiting)  # so none of the answers above came after theirs
        assert issuer.asked == 1
        issuer.let_go()
        answers = [each.result() for each in waiting]
    assert {answer.json()["code"] for answer in answers} == {"issuer_unreachable"}
    assert all("Retry-After" in answer.headers for answer in answers)
    assert issuer.asked == 1
    # None of them was compared, so none was a wrong guess: the address is not locked.
    assert ask(client, "another wrong secret").status_code == 401


def test_text_that_is_no_token_is_refused_without_the_issuer(
    client: httpx.Client, issuer: IssuerServer
) -> None:
    wrong_algorithm = Signer.invent("k1", algorithm="HS256")
    for secret in ("no token", "a.b.c", wrong_algorithm, Signer.invent(None), "e" * 8000):
        assert ask(client, secret).status_code == 401
    assert issuer.asked == 0


def test_a_token_of_an_issuer_that_answers_again_is_accepted(
    client: httpx.Client, issuer: IssuerServer
) -> None:
    issuer.answer = publishing([SIGNER])
    assert ask(client, SIGNER.token()).status_code == 200
    issuer.answer = hang
    assert ask(client, SIGNER.token()).status_code == 200  # the keys are known

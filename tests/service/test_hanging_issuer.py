"""The API while the issuer of its tokens hangs: health, and callers with keys of our own, need no issuer."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.service.conftest import serving
from tests.service.issuer import ISSUER, IssuerServer, Signer, hang, publishing, serving_issuer

SECRET = "a-secret-of-our-own"
SIGNER = Signer("k1")
TOKENS = 60  # more than there are threads for routes


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def issuer() -> Iterator[IssuerServer]:
    with serving_issuer(hang) as server:
        yield server


@pytest.fixture
def url(backend: Backend, issuer: IssuerServer, tmp_path: Path) -> Iterator[str]:
    """The API with a key of its own and the issuer, whose keys it has not fetched yet."""
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "own", "secret": SECRET, "scopes": ["read"]}]}))
    settings = ServiceSettings(
        api_keys_file=keys, oidc_issuer=ISSUER, oidc_audience="slipway", oidc_jwks_url=issuer.url
    )
    with serving(create_app(settings, backend)) as url:
        yield url


def ask(url: str, secret: str) -> httpx.Response:
    return httpx.get(f"{url}/exports", headers=bearer(secret), timeout=60)


def test_tokens_wait_for_one_fetch_and_nobody_else_waits_for_them(url: str, issuer: IssuerServer) -> None:
    ask(url, SECRET)
    invented = [Signer.invent(f"k{number}") for number in range(TOKENS)]
    with ThreadPoolExecutor(TOKENS) as pool:
        waiting = [pool.submit(ask, url, token) for token in invented]
        while not issuer.asked:
            time.sleep(0.01)
        for _ in range(3):
            assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
            assert ask(url, SECRET).status_code == 200
        assert not any(each.done() for each in waiting)  # so none of the answers above came after theirs
        assert issuer.asked == 1
        issuer.let_go()
        answers = [each.result() for each in waiting]
    assert {answer.json()["code"] for answer in answers} == {"issuer_unreachable"}
    assert all("Retry-After" in answer.headers for answer in answers)
    assert issuer.asked == 1
    # None of them was compared, so none was a wrong guess: the address is not locked.
    assert ask(url, "another wrong secret").status_code == 401


def test_text_that_is_no_token_is_refused_without_the_issuer(url: str, issuer: IssuerServer) -> None:
    wrong_algorithm = Signer.invent("k1", algorithm="HS256")
    for secret in ("no token", "a.b.c", wrong_algorithm, Signer.invent(None), "e" * 8000):
        assert ask(url, secret).status_code == 401
    assert issuer.asked == 0


def test_a_token_of_an_issuer_that_answers_again_is_accepted(url: str, issuer: IssuerServer) -> None:
    issuer.answer = publishing([SIGNER])
    assert ask(url, SIGNER.token()).status_code == 200
    issuer.answer = hang
    assert ask(url, SIGNER.token()).status_code == 200  # the keys are known

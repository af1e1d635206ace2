"""Access to the API by keys, scopes and tokens, and without any."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import jwt
import pytest
from pydantic import SecretStr, ValidationError
from starlette.testclient import TestClient

from exporter.storage.uris import UriRules
from jobs.control.control import Owner
from jobs.spec import JobSpec
from service.access.callers import Scope
from service.access.errors import UnsafeSetup
from service.access.keys import ApiKey
from service.access.rules import TokenRule
from service.app import create_app
from service.dependencies import Backend
from service.settings import ServiceSettings
from tests.jobs.factories import CONFIG_TEXT, make_job, make_spec
from tests.service.issuer import ISSUER, Signer, publishing, serving_issuer
from tests.service.requests import export_request

SECRETS = {scope: f"secret-of-the-{scope}-key" for scope in ("read", "submit", "admin")}
UNGUARDED = {"/healthz", "/readyz"}  # probes; besides, what comes to /webhooks is signed


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    keys = [{"name": scope, "secret": secret, "scopes": [scope]} for scope, secret in SECRETS.items()]
    keys[1]["max_queued"] = 1  # type: ignore[assignment] # JSON takes any value
    path.write_text(json.dumps({"keys": keys}))
    return path


@pytest.fixture
def guarded(backend: Backend, keys: Path) -> Iterator[TestClient]:
    settings = ServiceSettings(api_keys_file=keys, host="0.0.0.0")
    with TestClient(create_app(settings, backend)) as client:
        yield client


def test_a_request_without_a_key_is_refused(guarded: TestClient) -> None:
    for headers in ({}, bearer("some other secret"), {"Authorization": "Basic eDp5"}):
        answer = guarded.get("/exports", headers=headers)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_a_browser_may_send_the_key_as_a_cookie(guarded: TestClient) -> None:
    guarded.cookies.set("slipway_key", SECRETS["read"])
    assert guarded.get("/exports").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "needs"),
    [
        ("GET", "/exports", "read"),
        ("GET", "/metrics", "read"),
        ("GET", "/exports/{id}/bundle", "read"),
        ("POST", "/exports/{id}/cancel", "submit"),
        ("POST", "/exports/{id}/retry", "submit"),
        ("DELETE", "/exports/{id}", "admin"),
        ("POST", "/models/m/promote", "admin"),
        ("POST", "/models/m/roll-back", "admin"),
    ],
)
def test_a_call_takes_its_scope(
    guarded: TestClient, backend: Backend, method: str, path: str, needs: str
) -> None:
    job = make_job()
    backend.jobs.store.add(job, CONFIG_TEXT)
    url = path.format(id=job.id)
    order = list(SECRETS)
    for scope, secret in SECRETS.items():
        refused = guarded.request(method, url, headers=bearer(secret)).status_code == 403
        assert refused == (order.index(scope) < order.index(needs)), scope


def test_a_key_has_its_quota(guarded: TestClient) -> None:
    first, second = (
        guarded.post("/exports", json=export_request(), headers=bearer(SECRETS["submit"])) for _ in range(2)
    )
    assert (first.status_code, first.json()["owner"]) == (202, "submit")
    assert (second.status_code, second.json()["code"]) == (429, "quota_exceeded")
    assert int(second.headers["Retry-After"]) > 0


def test_a_change_leaves_a_line(guarded: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    answer = guarded.post("/exports", json=export_request(), headers=bearer(SECRETS["submit"]))
    (line,) = [record.msg for record in caplog.records if record.name == "slipway.audit"]
    assert isinstance(line, dict)
    assert (line["who"], line["action"], line["subject"]) == ("submit", "submit", answer.json()["id"])


def test_every_call_asks_who_calls(keys: Path, backend: Backend) -> None:
    app = create_app(ServiceSettings(api_keys_file=keys))
    app.state.backend = backend
    client = TestClient(app)  # its lifespan is not begun: nothing else is asked first
    paths = app.openapi()["paths"]
    calls = [(path, method) for path in paths for method in paths[path] if path != "/webhooks/training"]
    assert len(calls) > 20
    calls += [(page, "get") for page in ("/", "/jobs/x", "/workers")]
    answered = {
        path for path, method in calls if path not in UNGUARDED and _status(client, path, method) != 401
    }
    assert answered == set()


def _status(client: TestClient, path: str, method: str) -> int:
    return client.request(method, re.sub(r"\{\w+\}", "x", path)).status_code


@pytest.mark.parametrize("text", ["{", '{"keys": []}', '{"keys": [{"name": "a", "scopes": ["read"]}]}', None])
def test_a_service_with_unusable_keys_does_not_start(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "keys.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UnsafeSetup, match=r"keys\.json"):
        create_app(ServiceSettings(api_keys_file=path))


def test_an_unusable_file_of_keys_shows_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [{"name": "a b", "secret": "hush-hush-hush-hush", "scopes": []}]}))
    with pytest.raises(UnsafeSetup) as refused:
        create_app(ServiceSettings(api_keys_file=path))
    assert "hush" not in refused.value.message


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "slipway.example"])
def test_a_service_for_others_does_not_start_without_keys(host: str) -> None:
    with pytest.raises(UnsafeSetup, match=host):
        create_app(ServiceSettings(host=host))


def test_without_keys_only_this_machine_is_answered(backend: Backend) -> None:
    app = create_app(ServiceSettings(), backend)
    with TestClient(app, base_url="http://192.168.1.5") as client:
        assert client.get("/exports").status_code == 401
    with TestClient(app, base_url="http://127.0.0.1") as client:
        assert client.get("/exports").status_code == 200
        assert client.get("/exports", headers={"Host": "localhost:8080"}).status_code == 200
        assert client.get("/exports", headers={"Host": "rebound.example"}).status_code == 401


SIGNER = Signer("k1")


def token(lifetime: timedelta = timedelta(minutes=5), **changes: str | list[str]) -> str:
    claims: dict[str, object] = {"scope": "openid slipway:submit", **changes}
    return SIGNER.token(exp=time.time() + lifetime.total_seconds(), **claims)


@contextmanager
def taking_tokens(backend: Backend, rules: tuple[TokenRule, ...] = ()) -> Iterator[TestClient]:
    with serving_issuer(publishing([SIGNER])) as issuer:
        settings = ServiceSettings(
            oidc_issuer=ISSUER, oidc_audience="slipway", oidc_jwks_url=issuer.url, oidc_rules=rules
        )
        with TestClient(create_app(settings, backend)) as client:
            yield client


@pytest.fixture
def with_tokens(backend: Backend) -> Iterator[TestClient]:
    with taking_tokens(backend) as client:
        yield client


def test_a_token_is_bound_by_the_first_rule_that_fits_its_claims(backend: Backend) -> None:
    narrow = UriRules(outputs=("s3://models/feed",))
    rules = (
        TokenRule(claim="groups", value="feed", uris=narrow),
        TokenRule(claim="sub", value="nightly", max_queued=0),
    )
    with taking_tokens(backend, rules) as client:

        def answer(**claims: str | list[str]) -> int:
            sent = bearer(token(timedelta(minutes=5), **claims))
            return client.post("/exports", json=export_request(), headers=sent).status_code

        assert answer(groups=["ads", "feed"]) == answer(groups="feed", sub="nightly") == 403
        assert answer(sub="nightly") == 429
        assert answer() == answer(groups=["feeds"]) == 401


def test_a_token_sees_the_jobs_within_its_rule(backend: Backend) -> None:
    feed, ads = (
        make_job().model_copy(update={"spec": JobSpec.of(make_spec(output_uri=f"s3://models/{team}/v1"))})
        for team in ("feed", "ads")
    )
    for job in (feed, ads):
        backend.jobs.store.add(job, CONFIG_TEXT)
    rules = (
        TokenRule(claim="groups", value="feed", uris=UriRules(outputs=("s3://models/feed",))),
        TokenRule(),
    )
    with taking_tokens(backend, rules) as client:

        def seen(**claims: str) -> set[str]:
            sent = bearer(token(timedelta(minutes=5), **claims))
            return {job["id"] for job in client.get("/exports", headers=sent).json()["jobs"]}

        assert seen(groups="feed") == {feed.id}
        assert seen(groups="feed", scope="slipway:admin") == seen(groups="ads") == {feed.id, ads.id}


def test_rules_are_written_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_OIDC_RULES", '[{"claim": "sub", "value": "robot", "max_running": 2}, {}]')
    bound, free = ServiceSettings().oidc_rules
    assert (bound.owner("x"), free.owner("x")) == (Owner("x", max_running=2), Owner("x"))


@pytest.mark.parametrize("text", ["{", "[]x", '[{"claim": "sub"}]', '[{"uris": {"output": []}}]'])
def test_rules_that_cannot_be_read_keep_the_service_from_starting(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_OIDC_RULES", text)
    with pytest.raises(ValidationError, match="oidc_rules"):
        ServiceSettings()


def test_a_token_speaks_for_its_subject(with_tokens: TestClient) -> None:
    answer = with_tokens.post("/exports", json=export_request(), headers=bearer(token()))
    assert (answer.status_code, answer.json()["owner"]) == (202, "oidc:robot")


def test_no_subject_gets_the_answer_to_anothers_idempotency_key(with_tokens: TestClient) -> None:
    answers = [
        with_tokens.post(
            "/exports", json=export_request(), headers={**bearer(token(sub=subject)), "Idempotency-Key": key}
        )
        for subject, key in (("a:b", "k"), ("a", "b:k"), ("a:b", "k"))
    ]
    assert [answer.status_code for answer in answers] == [202] * 3
    assert ["Idempotency-Replayed" in answer.headers for answer in answers] == [False, False, True]
    assert answers[1].json()["owner"] == "oidc:a"


@pytest.mark.parametrize(
    "bad",
    [
        token(timedelta(minutes=-5)),
        token(iss="https://else.example"),
        token(aud="others"),
        token(scope="openid")[:-4] + "AAAA",
        jwt.encode({"sub": "x"}, "0" * 32, algorithm="HS256", headers={"kid": "k1"}),
        "no token",
    ],
    ids=["expired", "issuer", "audience", "signature", "algorithm", "nonsense"],
)
def test_a_bad_token_is_refused(with_tokens: TestClient, bad: str) -> None:
    assert with_tokens.get("/exports", headers=bearer(bad)).status_code == 401


def test_without_the_issuers_keys_nobody_is_called_wrong(backend: Backend) -> None:
    settings = ServiceSettings(
        oidc_issuer=ISSUER, oidc_audience="slipway", oidc_jwks_url="http://127.0.0.1:1/", guess_limit=1
    )
    with TestClient(create_app(settings, backend)) as client:
        answers = [client.get("/exports", headers=bearer(token())) for _ in range(3)]
        assert [answer.json()["code"] for answer in answers] == ["issuer_unreachable"] * 3
        assert answers[0].status_code == 503 and "Retry-After" in answers[0].headers
        assert client.get("/exports", headers=bearer("no token")).status_code == 401


def test_a_token_without_our_scopes_may_nothing(with_tokens: TestClient) -> None:
    assert with_tokens.get("/exports", headers=bearer(token(scope="openid"))).status_code == 403


def test_no_key_can_be_named_as_a_tokens_caller_is() -> None:
    with pytest.raises(ValidationError, match="name"):
        ApiKey(name="oidc:robot", secret=SecretStr("0123456789abcdef"), scopes=frozenset({Scope.READ}))

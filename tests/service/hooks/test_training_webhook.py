import json
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.errors import PROBLEM_JSON
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from tests.jobs.hooks.factories import SECRET
from tests.service.hooks.conftest import MakeClient
from tests.service.hooks.events import STRUCTURED, binary, rule, signed, structured, training_event

PATH = "/webhooks/training"
OTHER_SECRET = "whsec_" + "b3RoZXItb3RoZXItb3RoZXItb3RoZXI="


@pytest.fixture
def trigger(client: TestClient) -> str:
    assert client.put("/triggers/nightly", json=rule()).status_code == 201
    return "nightly"


@pytest.mark.parametrize("mode", [structured, binary])
def test_a_signed_event_starts_an_export(client: TestClient, trigger: str, mode: object) -> None:
    assert callable(mode)
    body, headers = mode(training_event())
    answer = client.post(PATH, content=body, headers=headers)
    assert answer.status_code == 202, answer.text
    told = answer.json()
    assert (told["matched"], told["duplicate"], told["id"]) == (1, False, "run-7")
    job = client.get(f"/exports/{told['starts'][0]['job']}").json()
    assert job["spec"]["output_uri"] == "/out/11"


def test_an_event_is_judged_by_its_signature_and_not_by_its_origin(client: TestClient, trigger: str) -> None:
    body, headers = structured(training_event())
    origin = {"origin": "https://training.example", "sec-fetch-site": "cross-site"}
    assert client.post(PATH, content=body, headers={**headers, **origin}).status_code == 202


def test_the_same_event_twice_starts_one_job(client: TestClient, trigger: str) -> None:
    body, headers = structured(training_event())
    first = client.post(PATH, content=body, headers=headers).json()
    again = client.post(PATH, content=body, headers=headers).json()
    assert again == {**first, "duplicate": True}
    assert len(client.get("/exports").json()["jobs"]) == 1


def test_an_event_that_fits_no_rule_is_accepted_and_starts_nothing(client: TestClient, trigger: str) -> None:
    body, headers = structured(training_event(model="dlrm"))
    answer = client.post(PATH, content=body, headers=headers)
    assert (answer.status_code, answer.json()["matched"]) == (202, 0)


def test_a_failed_training_job_starts_nothing(client: TestClient, trigger: str) -> None:
    body, headers = structured(training_event(status="failed"))
    assert client.post(PATH, content=body, headers=headers).json()["matched"] == 0
    assert client.get("/exports").json()["jobs"] == []


def test_a_value_that_the_event_lacks_is_answered_clearly(client: TestClient, trigger: str) -> None:
    body, headers = structured(training_event(step=None))
    answer = client.post(PATH, content=body, headers=headers)
    assert answer.status_code == 202
    (start,) = answer.json()["starts"]
    assert (start["job"], start["failure"]["code"]) == (None, "trigger_unfilled")
    assert "no data.step" in start["failure"]["message"]
    (noted,) = client.get("/triggers/nightly").json()["latest"]
    assert (noted["event"], noted["failure"]) == ("run-7", start["failure"])


class TestSignature:
    body = json.dumps(training_event()).encode()

    @pytest.mark.parametrize(
        ("sign", "why"),
        [
            (lambda body: {}, "Missing"),
            (lambda body: signed(body, secret=OTHER_SECRET), "No matching signature"),
            (lambda body: signed(b"another body"), "No matching signature"),
            (lambda body: signed(body, age_s=6 * 60), "too old"),
            (lambda body: signed(body, age_s=-6 * 60), "too new"),
            (lambda body: {**signed(body), "webhook-signature": "v1"}, "cannot be read"),
            (lambda body: {**signed(body), "webhook-signature": "v1,é"}, "cannot be read"),
            (lambda body: {**signed(body), "webhook-timestamp": "yesterday"}, "Invalid"),
        ],
    )
    def test_a_webhook_that_is_not_ours_is_401(
        self, client: TestClient, sign: Callable[[bytes], dict[str, str]], why: str
    ) -> None:
        headers = sign(self.body)  # now: a signature is good for five minutes
        sent = [
            (name.encode(), value.encode()) for name, value in {"content-type": STRUCTURED, **headers}.items()
        ]
        answer = client.post(PATH, content=self.body, headers=sent)
        assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM_JSON)
        assert answer.json()["code"] == "webhook_unverified"
        assert why in answer.json()["detail"]

    def test_a_body_that_is_not_text_is_401(self, client: TestClient) -> None:
        headers = {"content-type": STRUCTURED, **signed(b"x")}
        assert client.post(PATH, content=b"\xff\xfe", headers=headers).status_code == 401

    def test_four_minutes_of_delay_are_borne(self, client: TestClient) -> None:
        headers = {"content-type": STRUCTURED, **signed(self.body, age_s=4 * 60)}
        assert client.post(PATH, content=self.body, headers=headers).status_code == 202

    def test_without_secrets_nothing_is_let_in(self, make_client: MakeClient) -> None:
        headers = {"content-type": STRUCTURED, **signed(self.body)}
        with make_client(webhook_secrets=()) as client:
            assert client.post(PATH, content=self.body, headers=headers).status_code == 401

    def test_a_webhook_id_cannot_carry_another_event(self, client: TestClient) -> None:
        """The signature does not cover headers, which hold the attributes in binary mode."""
        body, headers = binary(training_event())
        assert client.post(PATH, content=body, headers=headers).status_code == 202
        answer = client.post(PATH, content=body, headers={**headers, "ce-id": "run-8"})
        assert (answer.status_code, answer.json()["code"]) == (401, "webhook_unverified")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (STRUCTURED, "{"),
        (STRUCTURED, "[]"),
        (STRUCTURED, '"text"'),
        (STRUCTURED, "[" * 100_000),
        (STRUCTURED, '{"specversion": "1.0"}'),
        (STRUCTURED, json.dumps({**training_event(), "specversion": "0.3"})),
        (STRUCTURED, json.dumps({**training_event(), "time": "yesterday"})),
        (STRUCTURED, json.dumps({**training_event(), "time": 7})),
        (STRUCTURED, json.dumps({**training_event(), "time": "2026-01-02T03:04:05"})),
        (STRUCTURED, json.dumps({**training_event(), "data": "text"})),
        (STRUCTURED, json.dumps({**training_event(), "id": 7})),
        (STRUCTURED, json.dumps({**training_event(), "source": "a\0b"})),
        ("application/cloudevents-batch+json", "[]"),
        ("application/json", "{}"),
        ("text/plain", "hello"),
    ],
)
def test_what_is_no_cloud_event_is_400(client: TestClient, content_type: str, body: str) -> None:
    headers = {"content-type": content_type, **signed(body.encode())}
    answer = client.post(PATH, content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_event"), answer.text


def test_an_event_that_is_too_large_is_413(make_client: MakeClient) -> None:
    body, headers = structured(training_event(padding="x" * 2000))
    with make_client(max_event_bytes=1000) as client:
        answer = client.post(PATH, content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")


def test_secrets_rotate_by_file_without_a_restart(make_client: MakeClient, tmp_path: Path) -> None:
    file = tmp_path / "secrets"
    file.write_text(SECRET)
    body, headers = structured(training_event(), secret=OTHER_SECRET)
    with make_client(webhook_secrets=(), webhook_secrets_file=file) as client:
        assert client.post(PATH, content=body, headers=headers).status_code == 401
        file.write_text(f"{SECRET}\n{OTHER_SECRET}\n")
        assert client.post(PATH, content=body, headers=headers).status_code == 202


def test_text_that_is_no_unicode_harms_nothing(client: TestClient, trigger: str) -> None:
    body, headers = structured(training_event(step="\ud800", more={"\ud800": "\ud800"}))
    answer = client.post(PATH, content=body, headers=headers)
    assert answer.status_code == 202, answer.text
    assert answer.json()["starts"][0]["failure"]["code"] == "trigger_unfilled"
    trial = client.post(
        f"/triggers/{trigger}/test", content=body, headers={"content-type": "application/json"}
    )
    assert trial.json()["failure"]["code"] == "trigger_unfilled"


@pytest.mark.usefixtures("redis_client")
def test_who_guesses_signatures_has_to_wait(redis_url: str, hook_settings: HookSettings) -> None:
    body, good = structured(training_event())
    bad = {**good, "webhook-signature": "v1,AAAA"}
    app = create_app(ServiceSettings(redis_url=redis_url, hooks=hook_settings, guess_limit=4))
    with TestClient(app) as client:
        answers = [client.post(PATH, content=body, headers=bad).status_code for _ in range(6)]
        assert answers == [401] * 4 + [429] * 2
        assert client.post(PATH, content=body, headers=good).status_code == 202  # it proves itself


@pytest.mark.usefixtures("redis_client")
def test_wrong_keys_and_wrong_signatures_lock_each_other_out_of_nothing(
    redis_url: str, hook_settings: HookSettings, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "own", "secret": "s" * 16, "scopes": ["read"]}]}))
    body, good = structured(training_event())
    bad = {**good, "webhook-signature": "v1,AAAA"}
    settings = {"redis_url": redis_url, "hooks": hook_settings, "api_keys_file": keys, "guess_limit": 3}

    def asked(client: TestClient, key: str) -> int:
        return client.get("/exports", headers={"Authorization": f"Bearer {key}"}).status_code

    with TestClient(create_app(ServiceSettings.model_validate(settings))) as client:
        assert [client.post(PATH, content=body, headers=bad).status_code for _ in range(4)][-1] == 429
        assert asked(client, "s" * 16) == 200
    with TestClient(create_app(ServiceSettings.model_validate(settings))) as client:
        assert [asked(client, f"wrong {number}") for number in range(4)][-1] == 429
        assert client.post(PATH, content=body, headers=bad).status_code == 401
        assert client.post(PATH, content=body, headers=good).status_code == 202

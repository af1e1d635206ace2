"""`slipway triggers`, `subscriptions` and `deliveries` against a real socket and a real Redis."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from jobs.hooks.triggers import TriggerRule
from service.app import create_app
from service.hooks.settings import HookSettings
from service.settings import ServiceSettings
from slipway.client import Client
from tests.service.conftest import serving
from tests.service.hooks.events import rule, training_event
from tests.service.hooks.receiver import Receiver
from tests.service.requests import export_request


@pytest.fixture
def url(redis_url: str, redis_client: object, hook_settings: HookSettings) -> Iterator[str]:
    app = create_app(ServiceSettings(redis_url=redis_url, hooks=hook_settings))
    with serving(app, lifespan="auto") as url:
        yield url


def written(folder: Path, content: object) -> str:
    file = folder / "request.json"
    file.write_text(json.dumps(content))
    return str(file)


def test_a_trigger_is_put_tried_shown_and_deleted(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["triggers", "put", "nightly", written(tmp_path, rule()), "--url", url]) == 0
    assert capsys.readouterr().out == "nightly\n"
    event = written(tmp_path, training_event())
    assert main(["triggers", "test", "nightly", event, "--url", url]) == 0
    assert capsys.readouterr().out == "it would export user, item\n"
    other = written(tmp_path, training_event(model="dlrm"))
    assert main(["triggers", "test", "nightly", other, "--url", url]) == 1
    assert "data.model 'dlrm' does not match" in capsys.readouterr().out
    assert main(["triggers", "list", "--url", url]) == 0
    assert "hstu*" in capsys.readouterr().out
    assert main(["triggers", "show", "nightly", "--url", url]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "nightly"
    assert main(["triggers", "delete", "nightly", "--url", url]) == 0
    assert main(["triggers", "show", "nightly", "--url", url]) == 1
    assert "[trigger_not_found]" in capsys.readouterr().err


def test_a_client_puts_and_lists_triggers(url: str) -> None:
    client = Client(url)
    assert client.put_trigger("nightly", TriggerRule.model_validate(rule())).enabled
    assert [each.name for each in client.triggers().triggers] == ["nightly"]


def test_a_wrong_rule_is_refused_with_its_field(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = written(tmp_path, {**rule(), "enabled": "perhaps"})
    assert main(["triggers", "put", "nightly", wrong, "--url", url]) == 1
    said = capsys.readouterr().err
    assert "[invalid_spec]" in said and "enabled" in said
    assert main(["triggers", "put", "nightly", str(tmp_path / "none.json"), "--url", url]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_events_are_subscribed_to_delivered_and_sent_again(
    url: str, receiver: Receiver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = written(tmp_path, {"url": receiver.url, "events": ["export.finished"]})
    assert main(["subscriptions", "add", asked, "--url", url]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["secret"].startswith("whsec_")
    assert main(["subscriptions", "list", "--url", url]) == 0
    assert made["id"] in capsys.readouterr().out
    body = written(tmp_path, export_request())
    assert main(["submit", "--spec", body, "--callback-url", receiver.url, "--url", url]) == 0
    job = capsys.readouterr().out.strip()
    assert main(["cancel", job, "--url", url]) == 0
    capsys.readouterr()
    end = time.monotonic() + 20
    while not (sent := Client(url).deliveries(job_id=job).deliveries) or sent[-1].state == "waiting":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert main(["deliveries", "list", "--job", job, "--url", url]) == 0
    assert "export.finished" in capsys.readouterr().out
    assert main(["deliveries", "replay", sent[0].id, "--url", url]) == 0
    assert capsys.readouterr().out.strip() == sent[0].id
    assert main(["deliveries", "show", sent[0].id, "--url", url]) == 0
    assert json.loads(capsys.readouterr().out)["job"] == job
    replaced = written(tmp_path, {"url": receiver.url, "events": ["export.started"]})
    assert main(["subscriptions", "replace", made["id"], replaced, "--url", url]) == 0
    assert json.loads(capsys.readouterr().out)["events"] == ["export.started"]
    assert main(["subscriptions", "delete", made["id"], "--url", url]) == 0
    assert main(["subscriptions", "show", made["id"], "--url", url]) == 1
    assert "[subscription_not_found]" in capsys.readouterr().err

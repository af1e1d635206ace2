"""The story of webhooks through whole programs: an event comes in, a job runs, its end is told."""

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from launcher.up import Stack, running_stack
from tests.architecture.tree import ROOT
from tests.jobs.hooks.factories import SECRET
from tests.launcher.conftest import stand_in
from tests.service.hooks.events import rule, structured, training_event
from tests.service.hooks.receiver import Receiver, running_receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as receiver:
        yield receiver


@pytest.fixture
def listening_stack(tmp_path: Path) -> Iterator[Stack]:
    secrets = {
        "SLIPWAY_WEBHOOK_SECRETS": SECRET,
        "SLIPWAY_CALLBACK_SECRETS": SECRET,
        "SLIPWAY_CALLBACK_NETWORKS": "127.0.0.0/8",
        "SLIPWAY_CALLBACK_PAUSES": "0.1,0.1,0.1",
        "SLIPWAY_CALLBACK_POLL": "0.05",
    }
    with running_stack(tmp_path, environment={**stand_in("succeed", tmp_path), **secrets}) as stack:
        yield stack


def _call(method: str, url: str, body: bytes, headers: dict[str, str]) -> dict[str, object]:
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        told: dict[str, object] = json.load(answer)
    return told


def _send_by_curl(url: str, event: dict[str, object], folder: Path) -> dict[str, object]:
    file = folder / "event.json"
    file.write_text(json.dumps(event, indent=1))
    environment = {"SLIPWAY_WEBHOOK_SECRET": SECRET, "PATH": os.defpath}
    command = [str(ROOT / "examples" / "send_event.sh"), str(file), url]
    sent = subprocess.run(command, env=environment, check=True, capture_output=True)
    told: dict[str, object] = json.loads(sent.stdout)
    return told


@pytest.mark.slow
def test_an_event_that_comes_twice_starts_one_export_whose_end_is_told_once(
    listening_stack: Stack, receiver: Receiver, tmp_path: Path
) -> None:
    url = listening_stack.url
    trigger = json.dumps(rule(callback_url=receiver.url)).encode()
    _call("PUT", f"{url}/triggers/nightly", trigger, {"content-type": "application/json"})
    receiver.answers = [500, 500, 204]  # of whichever event comes first
    first = _call("POST", f"{url}/webhooks/training", *structured(training_event()))
    again = _send_by_curl(url, training_event(), tmp_path)
    assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert first["starts"] == again["starts"]

    received = receiver.wait_for(6)  # four events, one of them thrice
    events = {
        each.headers["webhook-id"]: Webhook(SECRET).verify(each.body, each.headers) for each in received
    }
    assert sorted(event["type"] for event in events.values()) == [
        "export.finished",
        "export.started",
        "tower.finished",
        "tower.finished",
    ]
    ended = next(event for event in events.values() if event["type"] == "export.finished")
    assert ended["data"]["state"] == "succeeded"
    assert [{"trigger": "nightly", "job": ended["subject"], "failure": None}] == first["starts"]

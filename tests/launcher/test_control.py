"""Controlling and inspecting jobs through the whole of Slipway."""

import json
import re
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from exporter.spec import TowerName
from exporter.stages import Stage
from jobs.model import JobState
from jobs.request import ExportRequest
from launcher.errors import LaunchFailed
from launcher.up import Stack, running_stack
from service.client.watch import watch
from slipway.client import Client, RequestRefused
from tests.launcher.conftest import fake_ranks
from tests.service.requests import export_request

MakeStack = Callable[[str], AbstractContextManager[Stack]]


def request(**changes: object) -> ExportRequest:
    return ExportRequest.model_validate(export_request(**changes))


def test_a_job_tells_its_changes_and_its_ranks_lines(stack: Stack) -> None:
    client = Client(stack.url)
    job = client.submit(request())
    states = [each.state for each in client.events(job.id)]
    assert states[-1] is JobState.SUCCEEDED and JobState.RUNNING in states
    (compiling,) = client.log(job.id, TowerName.USER, Stage.COMPILE).parts
    assert re.fullmatch(r"\d\d:\d\d:\d\d at work on compile of user", "\n".join(compiling.lines))


def test_an_urgent_job_overtakes(stack: Stack) -> None:
    client = Client(stack.url)
    client.submit(request())  # keeps the worker busy for a moment
    patient, urgent = (client.submit(request(priority=priority)).id for priority in ("low", "high"))
    started = [watch(client, job_id, lambda job: None).started_at for job_id in (patient, urgent)]
    assert started[0] is not None and started[1] is not None and started[1] < started[0]


def test_attempts_are_counted(stack: Stack) -> None:
    client = Client(stack.url)
    watch(client, client.submit(request()).id, lambda job: None)
    with urllib.request.urlopen(f"{stack.url}/metrics") as answer:
        text = answer.read().decode()
    assert 'slipway_attempts_total{state="succeeded"}' in text
    assert 'slipway_stage_seconds_bucket{device="cpu",le="1.0",mode="unified",stage="compile"' in text


def test_a_retry_runs_only_the_failed_tower_and_completes_the_release(make_stack: MakeStack) -> None:
    with make_stack("fail-item") as stack:
        client = Client(stack.url)
        first = watch(client, client.submit(request(model="ranker")).id, lambda job: None)
        assert first.state is JobState.PARTIALLY_SUCCEEDED
        with pytest.raises(RequestRefused, match="no successful export"):
            client.latest("ranker")
        again = watch(client, client.retry(first.id, key="once").id, lambda job: None)
        assert client.retry(first.id, key="once").id == again.id
        assert (again.state, [tower.name for tower in again.towers]) == (JobState.SUCCEEDED, [TowerName.ITEM])
        towers = {tower.name: tower.job_id for tower in client.promote("ranker").towers}
        assert towers == {TowerName.USER: first.id, TowerName.ITEM: again.id}
        client.delete(first.id)
        assert len(client.promoted("ranker").towers) == 2


def test_a_stack_for_others_takes_keys(tmp_path: Path) -> None:
    with (
        pytest.raises(LaunchFailed, match="without keys"),
        running_stack(tmp_path / "open", host="0.0.0.0", environment=fake_ranks("succeed", tmp_path)),
    ):
        pass
    keys = tmp_path / "keys.json"
    secret = "sixteen-characters"
    keys.write_text(json.dumps({"keys": [{"name": "a", "secret": secret, "scopes": ["submit"]}]}))
    environment = {
        **fake_ranks("succeed", tmp_path),
        "SLIPWAY_API_KEYS_FILE": str(keys),
        "SLIPWAY_FILE_ROOTS": "/",
    }
    with running_stack(tmp_path / "closed", host="0.0.0.0", environment=environment) as stack:
        url = stack.url.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(RequestRefused, match="no key"):
            Client(url).page(limit=1)
        assert Client(url, secret).submit(request()).owner == "a"

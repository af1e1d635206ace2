"""`slipway models`, `promote`, `roll-back`, `workers` and `delete`, and how jobs are listed."""

import json
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.spec import Device
from jobs.control.releases import MemoryPointers
from jobs.fleet.roster import WorkerNotice
from jobs.model import JobState
from jobs.stores.memory_store import MemoryJobStore
from service.dependencies import Backend
from slipway.client import RequestRefused
from tests.jobs.factories import CONFIG_TEXT, NOW, make_job
from tests.service.conftest import Slipway
from tests.service.requests import ITEMS, ROWS
from tests.service.test_artifacts import publish
from tests.service.test_cli_commands import SUBMIT


def test_a_release_is_promoted_and_rolled_back(
    slipway: Slipway,
    backend: Backend,
    store: MemoryJobStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new = sorted(publish(store, str(tmp_path / str(number))).id for number in range(2))
    assert isinstance(backend.pointers, MemoryPointers)
    backend.pointers.released["ranker"] = [new, old]
    assert slipway("promote", "ranker", old) == 0
    assert slipway("promote", "ranker") == 0
    assert capsys.readouterr().out.split() == [old, new]
    assert slipway("models") == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.split()[0] == "ranker" and line.count(new) == 2
    assert slipway("roll-back", "ranker") == 0
    assert slipway("models", "ranker", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["job_id"] == new
    with pytest.raises(RequestRefused) as refused:
        slipway("models", "nobody")
    assert refused.value.code == "model_not_found"


def test_workers_are_listed(slipway: Slipway, backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    assert slipway("workers") == 1
    versions = {"torch": "2.13.0"}
    worker = WorkerNotice(
        id="w-1", host="h", pid=1, device=Device.CPU, targets=("avx2",), versions=versions, started_at=NOW
    )
    backend.roster.announce(worker, timedelta(minutes=1))
    capsys.readouterr()
    assert slipway("workers") == 0
    shown = capsys.readouterr().out.splitlines()[-1].split()
    assert shown[0] == "w-1" and "avx2" in shown and "2.13.0" in shown and shown[-1] == "idle"


def test_labels_are_submitted_and_listed(
    slipway: Slipway, store: MemoryJobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ("--label", "date=2026-01-31", "--label", "step=a=b")
    assert slipway(*SUBMIT, *ITEMS, *ROWS, *labels, "--model", "feed") == 0
    (job,) = store.page(limit=2).jobs
    assert dict(job.labels) == {"date": "2026-01-31", "step": "a=b"}
    capsys.readouterr()
    assert slipway("list") == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("feed", job.spec.checkpoint_uri, "date=2026-01-31"))


def test_a_job_that_has_ended_is_deleted(slipway: Slipway, store: MemoryJobStore) -> None:
    ended = make_job(JobState.FAILED)
    store.add(ended, CONFIG_TEXT)
    assert slipway("delete", ended.id) == 0
    assert store.page(limit=2).jobs == ()

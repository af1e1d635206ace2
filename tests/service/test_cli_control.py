"""`slipway submit`, `cancel` and `retry`: their effects on jobs, and their output."""

import pytest

from cli.main import main
from exporter.spec import TowerName
from jobs.lease.leases import claim
from jobs.model import JobState
from jobs.request import Priority
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_failure, make_job, make_outcome
from tests.service.requests import CHECKPOINT, CONFIG, ITEMS, ROWS

SUBMIT = ("submit", "--config", str(CONFIG), "--checkpoint", CHECKPOINT, "--output", "out")


def test_a_queued_job_is_cancelled(url: str, store: MemoryJobStore) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    assert main(["cancel", job.id, "--url", url]) == 0
    assert store.get(job.id).state is JobState.CANCELLED


def test_a_retry_prints_the_new_job(
    url: str, store: MemoryJobStore, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    holding.finish(make_outcome(failed={TowerName.ITEM: make_failure()}))
    assert main(["retry", job.id, "--url", url]) == 0
    (again,) = [each for each in store.page(limit=2).jobs if each.retry_of == job.id]
    assert capsys.readouterr().out.strip() == again.id


def test_submit_says_how_the_job_is_to_be_treated(url: str, store: MemoryJobStore) -> None:
    options = ("--priority", "high", "--model", "ranker", "--idempotency-key", "k-1", "--force")
    for _ in range(2):
        assert main([*SUBMIT, *ITEMS, *ROWS, *options, "--url", url]) == 0
    (job,) = store.page(limit=2).jobs
    assert (job.priority, job.model) == (Priority.HIGH, "ranker")

"""When a job ends, its attempts leave an artifact that the job names, or nothing."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.artifact.signing import SigningKey
from exporter.outcome import ExportOutcome
from jobs.errors import LeaseLost, StoreUnavailable
from jobs.fleet.roster import MemoryRoster
from jobs.fleet.tallies import Tally
from jobs.ids import JobId
from jobs.lease.orphans import OrphanedJob, take_orphan
from jobs.model import Job, JobState
from jobs.spec import JobSpec
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_failure, make_job, make_spec
from tests.worker.abandoned_jobs import (
    OVER,
    abandon_twice,
    cancel,
    held,
    job_with_output,
    place,
    publish,
    runner_of,
    send,
    stored_job,
)
from tests.worker.test_tasks import sweep
from worker.attempt.attempt_result import AttemptResult, Cancelled, Finished, HandedBack, NoOutcome
from worker.attempt.finalize import WaitPolicy, clean_up_after_loss, close_orphan, finalize_artifact
from worker.attempt.workspace import artifact_uri_of
from worker.heartbeat import Sweeper
from worker.supervisor import Supervisor
from worker.tasks import Runner

LAST = NoOutcome(make_failure())  # not worth another attempt
MakeSupervisor = Callable[..., Supervisor]


@pytest.fixture
def job(store: MemoryJobStore, tmp_path: Path) -> Job:
    return stored_job(store, output=tmp_path / "out")


@pytest.fixture
def runner(make_supervisor: MakeSupervisor, store: MemoryJobStore) -> Runner:
    return runner_of(store, make_supervisor("succeed"))


def test_a_job_abandoned_twice_leaves_nothing(store: MemoryJobStore, job: Job, runner: Runner) -> None:
    abandon_twice(store, job)
    sent = send(job)
    sweep(runner)
    assert store.get(job.id).state is JobState.FAILED
    assert not sent.exists()


def test_a_job_abandoned_twice_has_succeeded_if_its_artifact_stands(
    store: MemoryJobStore, job: Job, runner: Runner
) -> None:
    abandon_twice(store, job)
    manifest = publish(job)
    sweep(runner)
    ended = store.get(job.id)
    assert (ended.state, ended.manifest_uri) == (JobState.PARTIALLY_SUCCEEDED, str(manifest))


def test_a_manifest_whose_files_are_gone_is_no_artifact(
    store: MemoryJobStore, job: Job, runner: Runner
) -> None:
    abandon_twice(store, job)
    manifest = publish(job)
    (place(job) / "user" / "aoti" / "aoti_model.pt2").unlink()
    sweep(runner)
    assert (store.get(job.id).state, manifest.exists()) == (JobState.FAILED, False)


def test_a_job_cancelled_between_attempts_leaves_nothing(
    store: MemoryJobStore, job: Job, runner: Runner
) -> None:
    held(store, job).set_back(make_failure(retryable=True))
    sent = send(job)
    cancel(store, job)
    assert store.get(job.id).state is JobState.QUEUED and sent.exists()
    sweep(runner)
    assert (store.get(job.id).state, sent.exists()) == (JobState.CANCELLED, False)


def test_what_another_job_published_there_is_left_alone(
    store: MemoryJobStore, job: Job, runner: Runner
) -> None:
    abandon_twice(store, job)
    manifest = publish(job)
    manifest.write_text(manifest.read_text().replace(job.id, make_job().id))
    sweep(runner)
    assert (store.get(job.id).state, manifest.exists()) == (JobState.FAILED, True)


@pytest.mark.parametrize("ending", [LAST, Cancelled(), Finished(ExportOutcome(failure=make_failure()))])
def test_the_last_attempt_of_a_job_leaves_nothing(
    store: MemoryJobStore, job: Job, ending: AttemptResult
) -> None:
    holding, sent = held(store, job), send(job)
    assert finalize_artifact(ending, holding) == ending
    assert not sent.exists()


@pytest.mark.parametrize("ending", [LAST, Cancelled(), Finished(ExportOutcome(failure=make_failure()))])
def test_the_last_attempt_has_succeeded_if_its_artifact_stands(
    store: MemoryJobStore, job: Job, ending: AttemptResult
) -> None:
    holding, manifest = held(store, job), publish(job)
    adopted = finalize_artifact(ending, holding)
    assert isinstance(adopted, Finished) and adopted.outcome.manifest_uri == str(manifest)


@pytest.mark.parametrize("ending", [NoOutcome(make_failure(retryable=True)), HandedBack()])
def test_what_the_next_attempt_will_see_to_is_left_to_it(
    store: MemoryJobStore, job: Job, ending: AttemptResult
) -> None:
    holding, sent = held(store, job), send(job)
    assert finalize_artifact(ending, holding) == ending
    assert sent.exists()


def test_nothing_is_removed_by_who_has_lost_the_job(store: MemoryJobStore, job: Job) -> None:
    holding, sent = held(store, job, length=OVER), send(job)
    held(store, job, worker="w2")
    with pytest.raises(LeaseLost):
        finalize_artifact(LAST, holding)
    clean_up_after_loss(holding)
    assert sent.exists()


def test_what_a_straggler_sent_after_the_end_is_removed_by_its_worker(
    store: MemoryJobStore, job: Job, runner: Runner
) -> None:
    held(store, job, length=OVER)
    straggler = held(store, job, worker="w2", length=OVER)
    sweep(runner)
    sent = send(job)
    clean_up_after_loss(straggler)
    assert not sent.exists()


def test_what_a_straggler_sent_is_removed_though_the_job_goes_on_for_another_target(
    store: MemoryJobStore, job: Job
) -> None:
    for_two = make_spec(output_uri=job.spec.output_uri, target=("cpu", "avx2"))
    both = make_job().model_copy(update={"spec": JobSpec.of(for_two)})
    store.add(both, CONFIG_TEXT)
    straggler = held(store, both)
    straggler.set_back(make_failure())  # as the sweep would, in the meantime
    assert store.get(both.id).state is JobState.QUEUED
    sent = Path(artifact_uri_of(straggler.job)) / "user" / "aoti_model.pt2"
    sent.parent.mkdir(parents=True)
    sent.write_bytes(b"package")
    clean_up_after_loss(straggler)
    assert not sent.exists()


def test_what_a_straggler_sent_is_removed_once_the_job_is_closed(
    store: MemoryJobStore, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    held(store, job, length=OVER)
    straggler = held(store, job, worker="w2", length=OVER)
    orphan = take_orphan(store, job.id, store.leases()[job.id], worker="w3", length=MINUTE)
    assert orphan is not None
    sent, looks = send(job), iter(["away", "not yet"])

    def get(job_id: JobId) -> Job:
        look, found = next(looks, ""), MemoryJobStore.get(store, job_id)
        if look == "away":
            raise StoreUnavailable(OSError(look))
        if look == "not yet":
            assert sent.exists()
            orphan.end()  # just after it was looked at
        return found

    monkeypatch.setattr("worker.attempt.finalize._RETRY_S", 0.0)
    monkeypatch.setattr(store, "get", get)
    clean_up_after_loss(straggler)
    assert (store.get(job.id).state, sent.exists()) == (JobState.FAILED, False)


def test_a_worker_that_is_to_end_leaves_the_rest_to_the_next(store: MemoryJobStore, job: Job) -> None:
    holding, sent, stopped = held(store, job), send(job), threading.Event()
    beats: list[int] = []
    policy = WaitPolicy(stopped=stopped, on_beat=lambda: beats.append(1))
    stopped.set()
    assert finalize_artifact(LAST, holding, policy) == HandedBack()
    assert sent.exists() and beats
    stopped.clear()
    assert finalize_artifact(LAST, holding, policy) == LAST
    assert not sent.exists()


def test_a_sweep_that_closes_ends_with_its_worker(
    store: MemoryJobStore, job: Job, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandon_twice(store, job)
    sent, begun = send(job), threading.Event()

    def slow(orphan: OrphanedJob, key: SigningKey | None, stopped: threading.Event) -> Job:
        begun.set()
        assert stopped.wait(30)
        return close_orphan(orphan, key, stopped)

    monkeypatch.setattr("worker.tasks.close_orphan", slow)
    sweeper = Sweeper(MemoryRoster(), runner, timedelta(seconds=0.05), forget=lambda: None)
    sweeper.start()
    assert begun.wait(30)
    sweeper.stop()
    assert (store.get(job.id).state, sent.exists()) == (JobState.RUNNING, True)


def test_an_attempt_whose_worker_died_is_counted_by_who_ends_it(
    store: MemoryJobStore, job: Job, runner: Runner
) -> None:
    abandon_twice(store, job)
    sweep(runner)
    assert runner.tallies.read() == {Tally(name="attempts", ending=JobState.FAILED): 1}


def test_a_store_that_denies_access_does_not_keep_a_job_from_its_end(store: MemoryJobStore, job: Job) -> None:
    holding = held(store, job)
    odd = replace(holding, job=job_with_output(holding.job, "ftp://nowhere"))
    assert finalize_artifact(LAST, odd, WaitPolicy(retry_limit_s=0.0)) == LAST

"""The operations that callers have on jobs."""

from pathlib import Path

import pytest

from exporter.errors import StorageError
from exporter.options.index_spec import FlatIndex
from exporter.outcome import ExportOutcome
from exporter.spec import ExportSpec, Target, TowerName
from exporter.storage.store import StoredFile
from jobs.control.content import stat_files
from jobs.control.control import JobControl, Owner, Plan, enqueue_lost
from jobs.errors import JobNotFinished, JobNotFound, JobNotRetryable, QuotaExceeded, StoreUnavailable
from jobs.ids import JobId, new_job_id
from jobs.lease.leases import claim
from jobs.model import Job, JobState
from jobs.queue import MemoryQueue
from jobs.request import JobOptions, Priority
from jobs.stores.job_store import JobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_failure, make_job, make_outcome, make_spec


def plan(spec: ExportSpec) -> Plan:
    pinned = spec.model_copy(update={"config": "text of the day", "config_uri": None})
    return Plan(spec=pinned, towers=(TowerName.USER,))


def plan_both(spec: ExportSpec) -> Plan:
    return Plan(spec=spec, towers=(TowerName.USER, TowerName.ITEM))


class DeafQueue(MemoryQueue):
    """A queue that takes no messages."""

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL, target: Target = "cpu") -> None:
        raise StoreUnavailable(ConnectionError())


@pytest.fixture
def queue() -> MemoryQueue:
    return MemoryQueue()


@pytest.fixture
def control(store: JobStore, queue: MemoryQueue) -> JobControl:
    return JobControl(store, queue, plan)


def test_a_submitted_job_is_stored_and_enqueued(control: JobControl, queue: MemoryQueue) -> None:
    job = control.submit(make_spec())
    assert control.get(job.id) == job
    assert queue.sent == [job.id]


def test_the_job_keeps_the_config_of_its_submit(control: JobControl) -> None:
    job = control.submit(make_spec(config=None, config_uri="s3://b/pipeline.config"))
    assert control.spec_with_config(job).config == "text of the day"
    assert job.config_uri == "s3://b/pipeline.config"


def test_a_submit_outlives_a_queue_that_is_away(store: JobStore) -> None:
    job = JobControl(store, DeafQueue(), plan).submit(make_spec())
    assert store.get(job.id).state is JobState.QUEUED


def test_a_queued_job_without_a_message_is_enqueued_again(store: JobStore, queue: MemoryQueue) -> None:
    lost, waiting = make_job(), make_job()
    store.add(lost, CONFIG_TEXT)
    store.add(waiting, CONFIG_TEXT)
    queue.enqueue(waiting.id)
    assert enqueue_lost(store, queue) == (lost.id,)
    assert enqueue_lost(store, queue) == ()


def test_what_is_no_id_is_no_job(control: JobControl) -> None:
    with pytest.raises(JobNotFound):
        control.get("*")


def test_cancelling_twice_is_refused(control: JobControl) -> None:
    job = control.submit(make_spec())
    assert control.cancel(job.id).state is JobState.CANCELLED


def finished(store: JobStore, control: JobControl, outcome: ExportOutcome) -> Job:
    job = control.submit(make_spec(), JobOptions(model="ranker", priority=Priority.HIGH))
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    return holding.finish(outcome)


def test_a_retry_runs_only_the_towers_that_failed(store: JobStore, queue: MemoryQueue) -> None:
    control = JobControl(store, queue, plan_both)
    first = finished(store, control, make_outcome(failed={TowerName.ITEM: make_failure()}))
    again = control.retry(first.id)
    assert (again.retry_of, again.spec.towers, again.id != first.id) == (first.id, (TowerName.ITEM,), True)
    assert [tower.name for tower in again.towers] == [TowerName.ITEM]
    assert (again.model, again.priority) == ("ranker", Priority.HIGH)


def test_a_retry_of_the_other_tower_asks_for_no_item_vectors(store: JobStore, queue: MemoryQueue) -> None:
    control = JobControl(store, queue, plan_both)
    job = control.submit(make_spec(materialise_items=True, item_index=FlatIndex()))
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    holding.finish(make_outcome(failed={TowerName.USER: make_failure()}))
    again = control.retry(job.id).spec
    assert (again.towers, again.materialise_items, again.item_index) == ((TowerName.USER,), False, None)


def test_what_has_not_failed_cannot_be_retried(store: JobStore, queue: MemoryQueue) -> None:
    control = JobControl(store, queue, plan_both)
    for job in (control.submit(make_spec()), finished(store, control, make_outcome())):
        with pytest.raises(JobNotRetryable):
            control.retry(job.id)


def test_only_a_finished_job_is_deleted(control: JobControl) -> None:
    job = control.submit(make_spec())
    with pytest.raises(JobNotFinished):
        control.remove(job.id)
    control.cancel(job.id)
    control.remove(job.id)
    with pytest.raises(JobNotFound):
        control.get(job.id)
    assert control.page(limit=5, state=None, before=None).jobs == ()


def test_an_id_is_used_once(control: JobControl, queue: MemoryQueue) -> None:
    job_id = new_job_id()
    assert control.submit(make_spec(), job_id=job_id) == control.submit(make_spec(), job_id=job_id)
    assert queue.sent == [job_id]


def test_an_owner_has_only_so_many_queued_jobs(control: JobControl) -> None:
    alice = Owner("alice", max_queued=1)
    first = control.submit(make_spec(), owner=alice)
    with pytest.raises(QuotaExceeded, match="alice has 1 queued jobs"):
        control.submit(make_spec(), owner=alice)
    control.submit(make_spec(), owner=Owner("bob", max_queued=1))
    control.cancel(first.id)
    control.submit(make_spec(), owner=alice)


def test_an_owners_next_job_waits_while_as_many_run_as_may(control: JobControl, store: JobStore) -> None:
    alice = Owner("alice", max_running=1)
    first, second = (control.submit(make_spec(), owner=alice) for _ in range(2))
    holding = claim(store, first.id, worker="w1", length=MINUTE)
    assert holding is not None
    assert claim(store, second.id, worker="w2", length=MINUTE) is None
    assert store.get(second.id).state is JobState.QUEUED
    holding.finish(make_outcome())
    assert claim(store, second.id, worker="w2", length=MINUTE) is not None


@pytest.fixture
def sources(tmp_path: Path) -> ExportSpec:
    """A spec whose checkpoint exists; beside it lies a manifest."""
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "weights").write_bytes(b"1")
    (tmp_path / "manifest.json").write_text("{}")
    return make_spec(checkpoint_uri=str(tmp_path / "ckpt"), output_uri=str(tmp_path))


def succeed(store: JobStore, job: Job) -> Job:
    holding = claim(store, job.id, worker="w", length=MINUTE)
    assert holding is not None
    manifest = f"{job.spec.output_uri}/manifest.json"
    return holding.finish(make_outcome().model_copy(update={"manifest_uri": manifest}))


def test_the_same_export_answers_with_the_finished_one(
    control: JobControl, store: JobStore, sources: ExportSpec
) -> None:
    first = control.submit(sources)
    assert control.submit(sources).id != first.id  # it has not been made yet
    done = succeed(store, first)
    assert control.submit(sources) == done
    assert control.submit(sources, force=True).id != first.id


def test_other_weights_or_options_are_another_export(
    control: JobControl, store: JobStore, sources: ExportSpec, tmp_path: Path
) -> None:
    first = succeed(store, control.submit(sources))
    assert control.submit(sources.model_copy(update={"max_batch_size": 7})).id != first.id
    (tmp_path / "ckpt" / "weights").write_bytes(b"22")
    assert control.submit(sources).id != first.id


def test_an_artifact_that_cannot_be_looked_at_is_made_again(
    store: JobStore, queue: MemoryQueue, sources: ExportSpec
) -> None:
    def identify(uri: str) -> tuple[StoredFile, ...]:
        if uri.endswith("manifest.json"):
            raise StorageError(f"{uri}: access denied", retryable=False)
        return stat_files(uri)

    control = JobControl(store, queue, plan, identify)
    first = succeed(store, control.submit(sources))
    assert control.submit(sources).id != first.id


def test_an_artifact_that_was_removed_is_made_again(
    control: JobControl, store: JobStore, sources: ExportSpec, tmp_path: Path
) -> None:
    first = succeed(store, control.submit(sources))
    (tmp_path / "manifest.json").unlink()
    assert control.submit(sources).id != first.id

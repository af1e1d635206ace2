"""What callers can do with jobs."""

import pytest

from exporter.spec import ExportSpec, TowerName
from jobs.control import JobControl, Plan, enqueue_lost
from jobs.errors import JobNotFound, StoreUnavailable
from jobs.ids import JobId
from jobs.model import JobState
from jobs.queue import MemoryQueue
from jobs.store import JobStore
from tests.jobs.factories import make_job, make_spec


def plan(spec: ExportSpec) -> Plan:
    pinned = spec.model_copy(update={"config": "text of the day", "config_uri": None})
    return Plan(spec=pinned, towers=(TowerName.USER,))


class DeafQueue(MemoryQueue):
    """Takes no messages."""

    def enqueue(self, job_id: JobId) -> None:
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
    assert (job.spec.config, job.spec.config_uri) == ("text of the day", None)
    assert job.config_uri == "s3://b/pipeline.config"


def test_a_submit_outlives_a_queue_that_is_away(store: JobStore) -> None:
    job = JobControl(store, DeafQueue(), plan).submit(make_spec())
    assert store.get(job.id).state is JobState.QUEUED


def test_a_queued_job_without_a_message_is_enqueued_again(store: JobStore, queue: MemoryQueue) -> None:
    lost, waiting = make_job(), make_job()
    store.add(lost)
    store.add(waiting)
    queue.enqueue(waiting.id)
    assert enqueue_lost(store, queue) == (lost.id,)
    assert enqueue_lost(store, queue) == ()


def test_what_is_no_id_is_no_job(control: JobControl) -> None:
    with pytest.raises(JobNotFound):
        control.get("*")


def test_cancelling_twice_is_refused(control: JobControl) -> None:
    job = control.submit(make_spec())
    assert control.cancel(job.id).state is JobState.CANCELLED

"""Messages about new jobs, which a store in the same Redis sends in the step that stores the job."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
import redis
from celery import Celery

from exporter.spec import ExportSpec, TowerName
from jobs.celery_messages import RUN_EXPORT, read_message_text
from jobs.celery_queue import QUEUE, CeleryQueue, make_celery, message_lists, queue_name
from jobs.control.control import JobControl, Owner, Plan, enqueue_lost
from jobs.errors import QuotaExceeded
from jobs.ids import new_job_id
from jobs.model import Job
from jobs.request import JobOptions, Priority
from jobs.stores.redis_store import RedisJobStore
from tests.jobs.factories import make_spec

_PER_SENDING = {
    "body",
    "id",
    "root_id",
    "argsrepr",
    "kwargsrepr",
    "correlation_id",
    "delivery_tag",
    "reply_to",
}


def plan(spec: ExportSpec) -> Plan:
    return Plan(spec=spec, towers=(TowerName.USER,))


@pytest.fixture
def app(redis_url: str) -> Celery:
    return make_celery(redis_url, ["cpu", "avx2", "avx512"])


@pytest.fixture
def queue(app: Celery, redis_client: redis.Redis) -> CeleryQueue:
    return CeleryQueue(app, redis_client)


@pytest.fixture
def control(queue: CeleryQueue, redis_client: redis.Redis) -> JobControl:
    return JobControl(RedisJobStore(redis_client), queue, plan)


def waiting(client: redis.Redis, target: str = "cpu") -> list[str]:
    return [str(text) for key in message_lists(target) for text in client.lrange(key, 0, -1)]


def without_ids(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    return {name: without_ids(value) for name, value in message.items() if name not in _PER_SENDING}


@pytest.mark.parametrize("priority", list(Priority))
def test_a_message_is_as_celery_itself_would_send_it(
    app: Celery, queue: CeleryQueue, redis_client: redis.Redis, priority: Priority
) -> None:
    job_id, step = new_job_id(), {"high": 0, "normal": 3, "low": 6}[priority]
    app.send_task(
        RUN_EXPORT, args=[job_id], task_id=job_id, queue=queue_name("avx2"), priority=step, retry=False
    )
    queue.enqueue(job_id, priority, "avx2")
    [(key, texts)] = [
        (each, found) for each in message_lists("avx2") if (found := redis_client.lrange(each, 0, -1))
    ]
    ours, celerys = (json.loads(str(text)) for text in texts)
    assert without_ids(ours) == without_ids(celerys) and ours["body"] == celerys["body"]
    assert ours["headers"].keys() == celerys["headers"].keys()
    assert ours["properties"].keys() == celerys["properties"].keys()
    tags = {each["properties"]["delivery_tag"] for each in (ours, celerys)}
    assert len(tags) == 2, key


def test_a_new_job_has_a_message_for_each_of_its_targets(
    control: JobControl, redis_client: redis.Redis
) -> None:
    spec = make_spec(target=("avx2", "avx512"))
    job = control.submit(spec, JobOptions(priority=Priority.HIGH))
    for target in ("avx2", "avx512"):
        (message,) = waiting(redis_client, target)
        assert read_message_text(message).headers.id == job.id
    assert waiting(redis_client) == []


def test_a_job_that_is_refused_or_there_already_has_no_message(
    control: JobControl, redis_client: redis.Redis
) -> None:
    alice, job_id = Owner("alice", max_queued=1), new_job_id()
    control.submit(make_spec(), owner=alice, job_id=job_id)
    control.submit(make_spec(), owner=alice, job_id=job_id)
    with pytest.raises(QuotaExceeded):
        control.submit(make_spec(), owner=alice)
    assert len(waiting(redis_client)) == 1


def test_a_job_whose_message_redis_refuses_is_kept_and_sent_later(
    control: JobControl, queue: CeleryQueue, redis_client: redis.Redis
) -> None:
    key = f"{QUEUE}:3"
    redis_client.set(key, "no list")
    job = control.submit(make_spec())
    assert control.get(job.id) == job
    redis_client.delete(key)  # as a worker does that finds it, see `worker.celery_transport`
    assert enqueue_lost(RedisJobStore(redis_client), queue) == (job.id,)
    assert queue.find_undelivered() == {job.id}


def test_every_job_accepted_at_the_same_moment_has_one_message(
    control: JobControl, queue: CeleryQueue, redis_client: redis.Redis
) -> None:
    def submit(number: int) -> Job:
        return control.submit(make_spec(output_uri=f"/out/{number}"))

    with ThreadPoolExecutor(8) as threads:
        ids = [job.id for job in threads.map(submit, range(200))]
    assert sorted(read_message_text(text).headers.id for text in waiting(redis_client)) == sorted(ids)
    assert control.store.now() - control.get(ids[0]).created_at < timedelta(minutes=1)
    assert enqueue_lost(RedisJobStore(redis_client), queue) == ()

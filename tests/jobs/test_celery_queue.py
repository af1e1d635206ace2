"""Messages on a real broker, and the roster beside it."""

import json
import random
from datetime import timedelta

import pytest
import redis
from celery import Celery

from exporter.spec import Device
from jobs.celery_messages import read_delivery, read_message_text
from jobs.celery_queue import QUEUE, CeleryQueue, make_celery, message_lists
from jobs.fleet.redis_roster import RedisRoster
from jobs.fleet.roster import MemoryRoster, Roster, WorkerNotice
from jobs.ids import new_job_id
from jobs.request import Priority
from tests.hostile.messages import MALFORMED, message
from tests.jobs.factories import NOW


@pytest.fixture
def app(redis_url: str) -> Celery:
    return make_celery(redis_url)


def test_a_message_is_the_id_as_json(app: Celery, redis_client: redis.Redis) -> None:
    queue, job_id = CeleryQueue(app, redis_client), new_job_id()
    queue.enqueue(job_id)
    assert queue.find_undelivered() == {job_id}
    (message,) = (text for key in message_lists() for text in redis_client.lrange(key, 0, -1))
    assert json.loads(message)["content-type"] == "application/json"


def test_urgent_messages_come_first(app: Celery, redis_client: redis.Redis) -> None:
    queue = CeleryQueue(app, redis_client)
    ids = {priority: new_job_id() for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH)}
    for priority, job_id in ids.items():
        queue.enqueue(job_id, priority)
    assert queue.find_undelivered() == frozenset(ids.values())
    with app.connection() as connection, connection.SimpleQueue(QUEUE) as messages:
        taken = [messages.get(timeout=5) for _ in ids]
        assert [message.headers["id"] for message in taken] == list(ids.values())[::-1]
        for message in taken:
            message.ack()


def test_a_message_that_a_worker_holds_is_on_its_way(app: Celery, redis_client: redis.Redis) -> None:
    queue, job_id = CeleryQueue(app, redis_client), new_job_id()
    queue.enqueue(job_id)
    with app.connection() as connection, connection.SimpleQueue(QUEUE) as messages:
        message = messages.get(timeout=5)
        assert queue.find_undelivered() == {job_id}
        score = redis_client.zscore("unacked_index", message.delivery_tag)
        queue.put_off_redelivery(message.delivery_tag)
        later = redis_client.zscore("unacked_index", message.delivery_tag)
        assert score is not None and later is not None and later > score
        message.ack()
    assert queue.find_undelivered() == frozenset()


def test_an_acknowledged_message_stays_so(app: Celery, redis_client: redis.Redis) -> None:
    CeleryQueue(app, redis_client).put_off_redelivery("gone")
    assert redis_client.zcard("unacked_index") == 0


NOTICE = WorkerNotice(id="w1", host="h", pid=1, device=Device.CPU, versions={}, started_at=NOW)


@pytest.mark.parametrize("kind", ["memory", "redis"])
def test_a_worker_is_alive_until_it_withdraws(kind: str, redis_client: redis.Redis) -> None:
    roster: Roster = MemoryRoster() if kind == "memory" else RedisRoster(redis_client)
    roster.announce(NOTICE, timedelta(minutes=1))
    assert roster.alive() == (NOTICE,)
    roster.withdraw("w1")
    assert roster.alive() == ()


def test_a_silent_worker_is_forgotten(redis_client: redis.Redis) -> None:
    roster = RedisRoster(redis_client)
    roster.announce(NOTICE, timedelta(milliseconds=1))
    while redis_client.exists("slipway:worker:w1"):
        pass
    assert roster.alive() == ()


def test_one_worker_sweeps_at_a_time(redis_client: redis.Redis) -> None:
    roster = RedisRoster(redis_client)
    assert [roster.may_sweep(worker, timedelta(minutes=1)) for worker in ("w1", "w2")] == [True, False]
    assert roster.may_sweep("w2", timedelta(seconds=1))  # as after the clock was set back by most of a minute


def test_what_no_worker_can_read_is_no_message_about_a_job(app: Celery, redis_client: redis.Redis) -> None:
    queue, job_id = CeleryQueue(app, redis_client), new_job_id()
    for number, text in enumerate(MALFORMED.values()):
        redis_client.lpush(QUEUE, text)
        redis_client.hset("unacked", str(number), text)
    queue.enqueue(job_id)
    assert queue.find_undelivered() == {job_id}


def test_no_change_of_a_message_raises_anything_but_a_refusal() -> None:
    dice, sound = random.Random(10), message()
    pieces = ["null", "9" * 400, "[" * 500, '"', "\x00", "\ud800", "1e999", "{}", "\\u0000", "%"]
    read = 0
    for _ in range(3000):
        at = dice.randrange(len(sound))
        changed = sound[:at] + dice.choice([*pieces, ""]) + sound[at + dice.randrange(1, 20) :]
        for reader in (read_message_text, read_delivery):
            try:
                reader(changed if reader is read_message_text else f'[{changed}, "", "q"]')
                read += 1
            except ValueError:
                continue
    assert read < 3000

from datetime import timedelta

import pytest
import redis

from jobs.events import EventType
from jobs.hooks.deliveries import Answer, Delivery, DeliveryState
from jobs.hooks.errors import DeliveryBusy, DeliveryNotFound
from jobs.hooks.redis_outbox import UNREADABLE_KEY, RedisOutbox
from jobs.hooks.subscriptions import Subscription
from jobs.lease.leases import claim as claim_job
from jobs.lease.leases import update_job
from jobs.stores.redis_keys import OUTBOX_KEY
from jobs.stores.redis_store import RedisJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, NOW, make_job
from tests.jobs.hooks.factories import CALLBACK, SECRET, make_try

DAY = timedelta(days=1)
ACCEPTED = Answer(status=200)


@pytest.fixture
def outbox(redis_client: redis.Redis) -> RedisOutbox:
    return RedisOutbox(redis_client)


def _subscription(*events: EventType) -> Subscription:
    return Subscription(
        id="0" * 26, url="https://s/", events=frozenset(events), secret=SECRET, created_at=NOW, updated_at=NOW
    )


def _cancelled_job(client: redis.Redis, callback_url: str | None = CALLBACK) -> str:
    store = RedisJobStore(client)
    job = make_job().model_copy(update={"callback_url": callback_url})
    store.add(job, CONFIG_TEXT)
    update_job(store, job.id, lambda job, now: job.request_cancel(now))
    return job.id


def _fan_out(outbox: RedisOutbox, *subscriptions: Subscription) -> tuple[Delivery, ...]:
    while (text := outbox.next_entry()) is not None:
        assert outbox.fan_out(text, subscriptions)
    return outbox.page(limit=100, job=None, state=None, before=None).deliveries


def test_a_job_s_change_and_its_news_are_written_together(
    redis_client: redis.Redis, outbox: RedisOutbox
) -> None:
    job_id = _cancelled_job(redis_client)
    (delivery,) = _fan_out(outbox)
    assert (delivery.event.data.job, delivery.url) == (job_id, CALLBACK)
    assert outbox.next_entry() is None


def test_a_change_that_is_refused_tells_nothing(redis_client: redis.Redis, outbox: RedisOutbox) -> None:
    store = RedisJobStore(redis_client)
    job = make_job()
    store.add(job, CONFIG_TEXT)
    assert claim_job(store, job.id, worker="w1", length=MINUTE)
    assert redis_client.llen(OUTBOX_KEY) == 1
    assert not store.replace(job, job.request_cancel(NOW))  # of an old revision
    assert redis_client.llen(OUTBOX_KEY) == 1


def test_subscribers_are_told_what_they_asked_for(redis_client: redis.Redis, outbox: RedisOutbox) -> None:
    _cancelled_job(redis_client, callback_url=None)
    assert _fan_out(outbox, _subscription(EventType.EXPORT_STARTED)) == ()
    _cancelled_job(redis_client, callback_url=None)
    assert len(_fan_out(outbox, _subscription(EventType.EXPORT_FINISHED))) == 1


def test_two_senders_make_deliveries_of_an_event_once(redis_client: redis.Redis, outbox: RedisOutbox) -> None:
    _cancelled_job(redis_client)
    text = outbox.next_entry()
    assert text is not None
    assert outbox.fan_out(text, ())
    assert not RedisOutbox(redis_client).fan_out(text, ())


def test_an_event_of_another_version_is_set_aside(redis_client: redis.Redis, outbox: RedisOutbox) -> None:
    redis_client.rpush(OUTBOX_KEY, '{"from": "the future"}')
    _cancelled_job(redis_client)
    assert len(_fan_out(outbox)) == 1
    assert redis_client.llen(UNREADABLE_KEY) == 1


def test_a_delivery_is_one_sender_s_until_its_claim_ends(
    redis_client: redis.Redis, outbox: RedisOutbox
) -> None:
    _cancelled_job(redis_client)
    _fan_out(outbox)
    dead = outbox.claim(timedelta(milliseconds=50))
    assert dead is not None
    assert outbox.claim(MINUTE) is None
    while (mine := outbox.claim(MINUTE)) is None:
        pass
    done = dead.delivery.after_try(make_try(ACCEPTED), ACCEPTED, pauses=(), jitter=0)
    assert not outbox.save_result(dead, done)
    assert outbox.save_result(mine, done)
    assert outbox.get(done.id).state is DeliveryState.DELIVERED
    assert outbox.claim(MINUTE) is None


def test_a_delivery_that_is_being_sent_is_not_replayed(
    redis_client: redis.Redis, outbox: RedisOutbox
) -> None:
    _cancelled_job(redis_client)
    _fan_out(outbox)
    claim = outbox.claim(MINUTE)
    assert claim is not None
    with pytest.raises(DeliveryBusy):
        outbox.replay(claim.delivery.id)


def test_a_replayed_delivery_is_due_again(redis_client: redis.Redis, outbox: RedisOutbox) -> None:
    _cancelled_job(redis_client)
    _fan_out(outbox)
    claim = outbox.claim(MINUTE)
    assert claim is not None
    outbox.save_result(claim, claim.delivery.after_try(make_try(ACCEPTED), ACCEPTED, pauses=(), jitter=0))
    assert outbox.replay(claim.delivery.id).state is DeliveryState.WAITING
    again = outbox.claim(MINUTE)
    assert again is not None
    assert again.delivery.id == claim.delivery.id


def test_a_callback_that_is_gone_is_told_nothing_more(redis_client: redis.Redis, outbox: RedisOutbox) -> None:
    outbox.mark_gone(_cancelled_job(redis_client), DAY)
    assert _fan_out(outbox) == ()


def test_deliveries_are_paged_by_job_and_state(redis_client: redis.Redis, outbox: RedisOutbox) -> None:
    jobs = [_cancelled_job(redis_client) for _ in range(3)]
    _fan_out(outbox)
    first = outbox.page(limit=2, job=None, state=None, before=None)
    rest = outbox.page(limit=2, job=None, state=None, before=first.next)
    listed = [*first.deliveries, *rest.deliveries]
    assert [each.id for each in listed] == sorted((each.id for each in listed), reverse=True)
    assert {each.event.data.job for each in listed} == set(jobs)
    assert rest.next is None
    assert len(outbox.page(limit=9, job=jobs[0], state=DeliveryState.WAITING, before=None).deliveries) == 1
    assert outbox.page(limit=9, job=None, state=DeliveryState.DELIVERED, before=None).deliveries == ()


def test_old_deliveries_are_forgotten_when_they_have_ended(
    redis_client: redis.Redis, outbox: RedisOutbox
) -> None:
    _cancelled_job(redis_client)
    _cancelled_job(redis_client)
    _fan_out(outbox)
    claim = outbox.claim(MINUTE)
    assert claim is not None
    ended = claim.delivery.end(DeliveryState.DELIVERED, "", NOW - DAY)
    outbox.save_result(claim, ended)
    assert outbox.prune(timedelta(hours=1)) == 1
    with pytest.raises(DeliveryNotFound):
        outbox.get(ended.id)
    assert len(outbox.page(limit=9, job=None, state=None, before=None).deliveries) == 1

"""Claiming, renewing and losing a job."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from jobs.errors import LeaseLost
from jobs.lease.leases import Holding, claim, release_expired, update_job
from jobs.lease.orphans import take_orphan
from jobs.model import Job, JobState
from jobs.stores.job_store import JobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_event, make_failure, make_job, make_outcome

OVER = timedelta(seconds=-1)  # the length of a lease that has ended already


@pytest.fixture
def job(store: JobStore) -> Job:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    return job


def claimed(store: JobStore, job: Job, *, worker: str = "w1", length: timedelta = MINUTE) -> Holding:
    holding = claim(store, job.id, worker=worker, length=length)
    assert holding is not None
    return holding


def test_a_cancelled_job_is_not_begun_again_once_its_worker_is_gone(store: JobStore, job: Job) -> None:
    claimed(store, job, length=OVER)
    update_job(store, job.id, lambda each, now: each.request_cancel(now))
    assert claim(store, job.id, worker="w2", length=MINUTE) is None


def test_one_of_many_workers_gets_a_job(store: JobStore, job: Job) -> None:
    with ThreadPoolExecutor(8) as pool:
        claims = list(pool.map(lambda n: claim(store, job.id, worker=f"w{n}", length=MINUTE), range(16)))
    (winner,) = [holding for holding in claims if holding]
    assert store.get(job.id).lease == winner.job.lease


def test_a_redelivered_message_finds_the_job_taken(store: JobStore, job: Job) -> None:
    claimed(store, job)
    assert claim(store, job.id, worker="w1", length=MINUTE) is None


def test_a_redelivered_message_finds_the_job_finished(store: JobStore, job: Job) -> None:
    claimed(store, job).finish(make_outcome())
    assert claim(store, job.id, worker="w2", length=MINUTE) is None


def test_a_message_about_no_job_is_nothing(store: JobStore) -> None:
    assert claim(store, make_job().id, worker="w1", length=MINUTE) is None


def test_events_are_kept(store: JobStore, job: Job) -> None:
    claimed(store, job).renew([make_event(detail="x")])
    assert store.get(job.id).towers[0].detail == "x"


def test_a_renewal_moves_the_end(store: JobStore, job: Job) -> None:
    held = claimed(store, job, length=timedelta(0))
    kept = Holding(store=store, job=held.job, worker="w1", length=MINUTE).renew()
    assert kept.job.lease is not None and kept.job.lease.until > store.now() + MINUTE / 2
    assert MINUTE / 2 < kept.remaining <= MINUTE


def test_a_lease_from_a_clock_that_was_set_back_is_written_anew(store: JobStore, job: Job) -> None:
    held = claimed(store, job, length=60 * MINUTE)
    kept = Holding(store=store, job=held.job, worker="w1", length=MINUTE).renew()
    assert kept.job.lease is not None and kept.job.lease.until <= store.now() + MINUTE


def test_nothing_new_is_nothing_written(store: JobStore, job: Job) -> None:
    held = claimed(store, job)
    assert held.renew().job.revision == held.job.revision


def test_a_job_whose_attempt_broke_waits_before_it_is_begun_again(store: JobStore, job: Job) -> None:
    held = claim(store, job.id, worker="w1", length=MINUTE, pause=MINUTE)
    assert held is not None
    assert held.set_back(make_failure(retryable=True)).not_before is not None
    assert claim(store, job.id, worker="w2", length=MINUTE) is None


def test_a_job_that_cost_two_workers_gets_no_third(store: JobStore, job: Job) -> None:
    claimed(store, job, length=OVER)
    claimed(store, job, worker="w2", length=OVER)
    assert claim(store, job.id, worker="w3", length=MINUTE) is None
    leases = store.leases()
    assert release_expired(store, leases) == ()
    orphan = take_orphan(store, job.id, leases[job.id], worker="w3", length=MINUTE)
    assert orphan is not None
    ended = orphan.end()
    assert (ended.state, ended.attempt) == (JobState.FAILED, 2)
    assert ended.failure is not None and ended.failure.code == "attempt_failed"
    assert "two workers went away" in ended.failure.message and "w2" in ended.failure.message


def test_an_expired_job_is_taken_up_by_another(store: JobStore, job: Job) -> None:
    claimed(store, job, length=OVER)
    second = claimed(store, job, worker="w2")
    assert (second.job.attempt, second.job.setbacks) == (2, 1)


def test_the_first_worker_cannot_finish_what_another_took_up(store: JobStore, job: Job) -> None:
    first = claimed(store, job, length=OVER)
    claimed(store, job, worker="w2")
    for change in (first.renew, first.hand_back, first.cancel, lambda: first.finish(make_outcome())):
        with pytest.raises(LeaseLost):
            change()
    assert store.get(job.id).state is JobState.RUNNING


def test_the_same_worker_loses_its_earlier_attempt(store: JobStore, job: Job) -> None:
    first = claimed(store, job, length=OVER)
    claimed(store, job)
    with pytest.raises(LeaseLost):
        first.finish(make_outcome())


def test_an_expired_job_is_queued_again(store: JobStore, job: Job) -> None:
    claimed(store, job, length=OVER)
    assert [each.id for each in release_expired(store, store.leases())] == [job.id]
    assert store.get(job.id).state is JobState.QUEUED


def test_a_lease_renewed_since_it_was_judged_is_left_alone(store: JobStore, job: Job) -> None:
    held, ended = claimed(store, job, length=OVER), store.leases()
    Holding(store=store, job=held.job, worker="w1", length=MINUTE).renew()
    assert release_expired(store, ended) == ()
    assert store.get(job.id).state is JobState.RUNNING


def test_a_job_whose_worker_may_come_back_is_not_taken_from_it(store: JobStore, job: Job) -> None:
    claimed(store, job, length=OVER)
    assert claim(store, job.id, worker="w2", length=MINUTE, may_expire=lambda now: False) is None
    assert store.get(job.id).setbacks == 0


def test_a_broken_attempt_is_queued_again(store: JobStore, job: Job) -> None:
    assert claimed(store, job).set_back(make_failure(retryable=True)).state is JobState.QUEUED


def test_changes_of_many_are_all_kept(store: JobStore, job: Job) -> None:
    def count(job: Job, now: object) -> Job:
        return job.model_copy(update={"setbacks": job.setbacks + 1})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: update_job(store, job.id, count), range(20)))
    assert store.get(job.id).setbacks == 20

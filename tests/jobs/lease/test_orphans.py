"""Closing jobs that nobody works on: who may do it, and how the job ends."""

from datetime import timedelta

import pytest

from exporter.spec import TowerName
from jobs.errors import LeaseLost
from jobs.lease.leases import Holding, claim, release_expired, update_job
from jobs.lease.orphans import OrphanedJob, take_orphan
from jobs.model import Job, JobState
from jobs.spec import JobSpec
from jobs.stores.job_store import JobStore
from jobs.stores.record import write_record
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_failure, make_job, make_outcome, make_spec

OVER = timedelta(seconds=-1)


def begun(store: JobStore, *, length: timedelta = MINUTE, **changes: object) -> Holding:
    job = make_job().model_copy(update={"spec": JobSpec.of(make_spec(**changes))})
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w1", length=length, serves=("cpu", "avx2"))
    assert holding is not None
    return holding


def cancel(store: JobStore, job: Job) -> Job:
    return update_job(store, job.id, lambda each, now: each.request_cancel(now))


def over(store: JobStore, job: Job) -> OrphanedJob:
    orphan = take_orphan(store, job.id, store.leases()[job.id], worker="w2", length=MINUTE)
    assert orphan is not None
    return orphan


def test_a_job_cancelled_between_two_attempts_is_closed_by_a_worker(store: JobStore) -> None:
    job = cancel(store, begun(store).set_back(make_failure(retryable=True)))
    assert (job.state, job.cancel_requested) == (JobState.QUEUED, True)
    assert claim(store, job.id, worker="w2", length=MINUTE) is None
    assert release_expired(store, store.leases()) == ()
    assert over(store, job).end().state is JobState.CANCELLED
    assert store.leases() == {}


def test_a_job_cancelled_twice_is_still_to_be_closed(store: JobStore) -> None:
    job = cancel(store, begun(store).hand_back())
    assert cancel(store, job) == job


def test_what_was_published_before_it_was_cancelled_stands(store: JobStore) -> None:
    job = cancel(store, begun(store).hand_back())
    adopted = over(store, job).adopt("cpu", make_outcome())
    assert (adopted.state, adopted.manifest_uri) == (JobState.SUCCEEDED, "/out/manifest.json")


def test_what_the_second_worker_published_before_it_died_stands(store: JobStore) -> None:
    first = begun(store, length=OVER)
    assert claim(store, first.job.id, worker="w2", length=OVER) is not None
    adopted = over(store, first.job).adopt("cpu", make_outcome())
    assert (adopted.state, adopted.failure, adopted.attempt) == (JobState.SUCCEEDED, None, 2)


def test_a_job_whose_closer_dies_too_was_lost_by_the_worker_of_its_attempt(store: JobStore) -> None:
    first = begun(store, length=OVER)
    assert claim(store, first.job.id, worker="w2", length=OVER) is not None
    died = take_orphan(store, first.job.id, store.leases()[first.job.id], worker="w3", length=OVER)
    assert died is not None
    orphan = take_orphan(store, first.job.id, store.leases()[first.job.id], worker="w4", length=MINUTE)
    assert orphan is not None
    with pytest.raises(LeaseLost):
        died.end()
    failure = orphan.end().failure
    assert failure is not None and "worker w2 stopped renewing" in failure.message


def test_the_lease_of_an_attempt_is_written_as_programs_of_before_know_it(store: JobStore) -> None:
    assert '"closer"' not in write_record(begun(store).job)


def test_one_worker_closes_a_job_and_an_attempt_that_wakes_up_does_nothing(store: JobStore) -> None:
    first = begun(store, length=OVER)
    second = claim(store, first.job.id, worker="w2", length=OVER)
    assert second is not None
    leases = store.leases()
    orphan = take_orphan(store, first.job.id, leases[first.job.id], worker="w2", length=MINUTE)
    assert orphan is not None
    assert take_orphan(store, first.job.id, leases[first.job.id], worker="w3", length=MINUTE) is None
    with pytest.raises(LeaseLost):
        second.renew()
    orphan.renew()
    assert orphan.end().state is JobState.FAILED


@pytest.mark.parametrize("length", [MINUTE, OVER])
def test_a_job_that_is_tried_again_is_not_closed(store: JobStore, length: timedelta) -> None:
    job = begun(store, length=length).job
    assert take_orphan(store, job.id, store.leases()[job.id], worker="w2", length=MINUTE) is None


def test_of_a_job_for_two_targets_all_places_are_looked_at(store: JobStore) -> None:
    job = cancel(store, begun(store, target=("cpu", "avx2")).set_back(make_failure(retryable=True)))
    orphan = over(store, job)
    assert orphan.targets == ("cpu", "avx2")
    assert orphan.towers("avx2") == (TowerName.USER, TowerName.ITEM)

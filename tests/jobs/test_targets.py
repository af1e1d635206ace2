"""Jobs for several targets: which worker may take them, and which targets wait in vain."""

import pytest

from exporter.spec import Device, ExportSpec, Target, TowerName
from jobs.control.control import JobControl, Plan, enqueue_lost
from jobs.events import make_outbox_entries
from jobs.fleet.roster import WorkerNotice, find_unserved
from jobs.lease.leases import Holding, claim
from jobs.model import Job, JobState, TowerState
from jobs.queue import MemoryQueue
from jobs.stores.job_store import JobStore
from tests.jobs.factories import MINUTE, NOW, make_failure, make_outcome, make_spec

BOTH = (TowerName.USER, TowerName.ITEM)


@pytest.fixture
def queue() -> MemoryQueue:
    return MemoryQueue()


@pytest.fixture
def control(store: JobStore, queue: MemoryQueue) -> JobControl:
    return JobControl(store, queue, lambda spec: Plan(spec, BOTH))


def take(store: JobStore, job: Job, *serves: Target) -> Holding | None:
    return claim(store, job.id, worker="w1", length=MINUTE, serves=serves)


def taken(store: JobStore, job: Job, *serves: Target) -> Holding:
    holding = take(store, job, *serves)
    assert holding is not None
    return holding


def two_targets() -> ExportSpec:
    return ExportSpec.model_validate({**make_spec().model_dump(), "target": ["avx2", "avx512"]})


def test_a_job_goes_to_the_queue_of_each_of_its_targets(control: JobControl, queue: MemoryQueue) -> None:
    job = control.submit(two_targets())
    assert [(job.id, "avx2"), (job.id, "avx512")] == list(zip(queue.sent, queue.routes, strict=True))


def test_a_worker_of_another_architecture_is_not_given_the_job(store: JobStore, control: JobControl) -> None:
    job = control.submit(two_targets())
    assert take(store, job, "cpu", "cuda", "sm_90") is None
    assert store.get(job.id).state is JobState.QUEUED


def test_each_target_is_exported_once_and_then_the_job_has_succeeded(
    store: JobStore, control: JobControl
) -> None:
    job = control.submit(two_targets())
    between = taken(store, job, "avx512").finish(make_outcome())
    assert (between.state, between.pending_targets) == (JobState.QUEUED, ("avx2",))
    assert take(store, job, "avx512") is None
    ended = taken(store, job, "avx2").finish(make_outcome())
    assert (ended.state, set(ended.manifest_uris)) == (JobState.SUCCEEDED, {"avx2", "avx512"})
    assert {(tower.name, tower.target) for tower in ended.towers} == {
        (name, target) for name in BOTH for target in ("avx2", "avx512")
    }


def test_what_fails_for_one_target_is_published_for_the_other(store: JobStore, control: JobControl) -> None:
    job = control.submit(two_targets())
    taken(store, job, "avx2").set_back(make_failure())
    ended = taken(store, job, "avx512").finish(make_outcome())
    assert ended.state is JobState.PARTIALLY_SUCCEEDED
    states = {tower.target: tower.state for tower in ended.towers}
    assert states == {"avx2": TowerState.FAILED, "avx512": TowerState.SUCCEEDED}


def test_a_retry_is_for_the_targets_that_failed(store: JobStore, control: JobControl) -> None:
    job = control.submit(two_targets())
    taken(store, job, "avx2").set_back(make_failure())
    taken(store, job, "avx512").finish(make_outcome())
    assert control.retry(job.id).spec.targets == ("avx2",)


def test_a_retry_runs_no_tower_for_a_target_that_it_did_not_fail_for(
    store: JobStore, control: JobControl
) -> None:
    """The user tower failed for one target and the item tower for the other: two pairs, not four."""
    job = control.submit(two_targets())
    taken(store, job, "avx2").finish(make_outcome(failed={TowerName.USER: make_failure()}))
    taken(store, job, "avx512").finish(make_outcome(failed={TowerName.ITEM: make_failure()}))
    again = control.retry(job.id)
    pairs = [(tower.name, tower.target) for tower in again.towers]
    assert pairs == [(TowerName.USER, "avx2"), (TowerName.ITEM, "avx512")]
    for name, target in pairs:
        attempt = taken(store, again, str(target))
        assert (attempt.job.current_spec.towers, attempt.job.current_spec.targets) == ((name,), (target,))
        attempt.finish(make_outcome())
    assert store.get(again.id).state is JobState.SUCCEEDED


def test_a_job_counts_where_it_waits_and_then_where_it_runs(store: JobStore, control: JobControl) -> None:
    job = control.submit(two_targets())
    assert store.count_by_route(JobState.QUEUED) == {"avx2": 1, "avx512": 1}
    taken(store, job, "avx512")
    assert (store.count_by_route(JobState.QUEUED), store.count_by_route(JobState.RUNNING)) == (
        {},
        {"avx512": 1},
    )


def test_a_message_lost_on_its_way_to_one_target_is_sent_again(
    store: JobStore, control: JobControl, queue: MemoryQueue
) -> None:
    job = control.submit(two_targets())
    del queue.sent[1:], queue.routes[1:]
    assert enqueue_lost(store, queue) == (job.id,)
    assert queue.routes == ["avx2", "avx512"]


def test_its_first_targets_towers_are_told_of_when_they_end(store: JobStore, control: JobControl) -> None:
    running = taken(store, control.submit(two_targets()), "avx2")
    told = [entry.event.data for entry in make_outbox_entries(running.job, running.finish(make_outcome()))]
    assert {(each.tower, each.target) for each in told} == {(name, "avx2") for name in BOTH}


def test_targets_that_no_worker_serves_are_told() -> None:
    worker = WorkerNotice(
        id="w", host="h", pid=1, device=Device.CPU, targets=("cpu", "avx2"), versions={}, started_at=NOW
    )
    assert find_unserved(("avx2", "avx512"), [worker]) == ("avx512",)


def test_a_target_implies_its_device() -> None:
    spec = make_spec().model_dump(exclude={"device"})
    assert ExportSpec.model_validate({**spec, "target": "sm_90"}).device is Device.CUDA
    with pytest.raises(ValueError, match="`target` begins with sm_90, and `device` is cpu"):
        ExportSpec.model_validate({**spec, "target": "sm_90", "device": "cpu"})

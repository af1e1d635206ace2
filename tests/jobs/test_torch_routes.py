"""Jobs that name a release of torch: which worker may take them, and when they are refused."""

import pytest

from exporter.spec import Device, ExportSpec, TowerName
from jobs.control.control import JobControl, Plan, enqueue_lost
from jobs.errors import TorchUnserved
from jobs.fleet.roster import WorkerNotice, find_releases, find_unserved
from jobs.lease.leases import claim
from jobs.model import Job, JobState
from jobs.queue import MemoryQueue
from jobs.route import make_route, routes_of_worker, split_route
from jobs.stores.job_store import JobStore
from tests.jobs.factories import MINUTE, NOW, make_failure, make_outcome, make_spec

BOTH = (TowerName.USER, TowerName.ITEM)
FLEET = {"2.13"}


@pytest.fixture
def queue() -> MemoryQueue:
    return MemoryQueue()


@pytest.fixture
def control(store: JobStore, queue: MemoryQueue) -> JobControl:
    return JobControl(store, queue, lambda spec: Plan(spec, BOTH), torch_releases=lambda: FLEET)


def spec_with(torch: str | None, *targets: str) -> ExportSpec:
    return ExportSpec.model_validate(
        {**make_spec().model_dump(), "torch": torch, "target": targets or ("cpu",)}
    )


def notice(*routes: str) -> WorkerNotice:
    return WorkerNotice(
        id="w", host="h", pid=1, device=Device.CPU, routes=routes, versions={}, started_at=NOW
    )


def is_taken(store: JobStore, job: Job, *serves: str) -> bool:
    return claim(store, job.id, worker="w1", length=MINUTE, serves=serves) is not None


def test_a_route_says_its_target_and_release() -> None:
    assert [split_route(make_route("avx2", torch)) for torch in (None, "2.13")] == [
        ("avx2", None),
        ("avx2", "2.13"),
    ]


def test_a_worker_that_keeps_to_its_release_takes_only_jobs_that_name_it() -> None:
    assert routes_of_worker(("cpu", "avx2"), "2.13") == ("cpu", "avx2", "cpu@2.13", "avx2@2.13")
    assert routes_of_worker(("cpu",), "2.13", only_named=True) == ("cpu@2.13",)
    assert routes_of_worker(("cpu",), None) == ("cpu",)


def test_a_job_goes_to_the_queues_of_its_release(control: JobControl, queue: MemoryQueue) -> None:
    control.submit(spec_with("2.13", "avx2", "avx512"))
    assert queue.routes == ["avx2@2.13", "avx512@2.13"]


@pytest.mark.parametrize("serves", [("cpu",), ("cpu@2.14",), ("avx2@2.13",)])
def test_a_worker_of_another_release_or_target_is_not_given_the_job(
    store: JobStore, control: JobControl, serves: tuple[str, ...]
) -> None:
    job = control.submit(spec_with("2.13"))
    assert not is_taken(store, job, *serves)
    assert is_taken(store, job, *serves, "cpu@2.13")


def test_a_job_that_names_no_release_is_not_taken_by_a_worker_that_keeps_to_one(
    store: JobStore, control: JobControl
) -> None:
    assert not is_taken(store, control.submit(spec_with(None)), "cpu@2.13")


def test_a_release_that_no_worker_has_is_refused_at_once(store: JobStore, control: JobControl) -> None:
    with pytest.raises(TorchUnserved, match="no worker has torch 2.15; those alive have 2.13") as refused:
        control.submit(spec_with("2.15"))
    assert refused.value.where == "torch" and store.count(JobState.QUEUED) == 0


def test_a_retry_is_refused_too_once_the_release_is_gone(
    store: JobStore, queue: MemoryQueue, control: JobControl
) -> None:
    job = control.submit(spec_with("2.13"))
    holding = claim(store, job.id, worker="w1", length=MINUTE, serves=("cpu@2.13",))
    assert holding is not None
    holding.finish(make_outcome(failed={TowerName.USER: make_failure()}))
    assert control.retry(job.id).spec.torch == "2.13"
    later = JobControl(store, queue, control.plan, torch_releases=lambda: {"2.14"})
    with pytest.raises(TorchUnserved, match="those alive have 2.14"):
        later.retry(job.id)


def test_releases_and_targets_without_a_worker_are_told() -> None:
    alive = [notice("cpu", "cpu@2.13"), notice("avx2@2.14")]
    assert find_releases(alive) == {"2.13", "2.14"}
    assert find_unserved(("cpu@2.13", "cpu@2.14", "avx2@2.14"), alive) == ("cpu",)


def test_an_older_worker_serves_its_targets_for_jobs_that_name_no_release() -> None:
    older = notice().model_copy(update={"targets": ("cpu", "avx2")})
    assert find_unserved(("avx2",), [older]) == ()
    assert find_unserved(("avx2@2.13",), [older]) == ("avx2",) and find_releases([older]) == frozenset()


def test_jobs_count_by_their_route(store: JobStore, control: JobControl) -> None:
    job = control.submit(spec_with("2.13"))
    control.submit(spec_with(None))
    assert store.count_by_route(JobState.QUEUED) == {"cpu": 1, "cpu@2.13": 1}
    assert is_taken(store, job, "cpu@2.13")
    assert store.count_by_route(JobState.RUNNING) == {"cpu@2.13": 1}


def test_a_lost_message_is_sent_again_on_its_route(
    store: JobStore, control: JobControl, queue: MemoryQueue
) -> None:
    job = control.submit(spec_with("2.13"))
    queue.sent.clear()
    queue.routes.clear()
    assert enqueue_lost(store, queue) == (job.id,)
    assert queue.routes == ["cpu@2.13"]


@pytest.mark.parametrize("release", ["2", "2.13.0", "v2.13", "", "2.13 "])
def test_what_is_no_release_is_refused(release: str) -> None:
    with pytest.raises(ValueError, match="torch"):
        spec_with(release)

"""An attempt on several hosts: other workers are called through the queue and help until it ends."""

import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from exporter.distributed.rendezvous import Rendezvous
from exporter.stages import Stage, StageEvent
from jobs.lease.leases import Holding, claim, join_attempt
from jobs.model import JobState
from jobs.queue import HostCall, MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_job
from worker.hosts.call_workers import HostCaller, rendezvous_of
from worker.settings import WorkerSettings
from worker.supervisor import Supervisor

MakeSupervisor = Callable[..., Supervisor]

HERE = HostCaller(address="127.0.0.1", time_limit=timedelta(seconds=7))


def claimed(store: MemoryJobStore, nodes: int | None) -> Holding:
    job = make_job()
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"nodes": nodes})})
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="leader", length=MINUTE)
    assert holding is not None
    return holding


def test_every_other_host_is_called_to_one_place(store: MemoryJobStore) -> None:
    queue, holding = MemoryQueue(), claimed(store, 3)
    place = HERE.call_hosts(holding.job, queue)
    assert place is not None and place.port > 0 and place.leads
    assert [rendezvous_of(call) for call in queue.calls] == [replace(place, leads=False)] * 2
    assert {(call.job_id, call.attempt) for call in queue.calls} == {(holding.job.id, 1)}


def test_an_attempt_on_one_host_calls_nobody(store: MemoryJobStore) -> None:
    queue = MemoryQueue()
    assert HERE.call_hosts(claimed(store, None).job, queue) is None
    assert not queue.calls


def test_who_helps_reports_and_renews_nothing(store: MemoryJobStore) -> None:
    holding = claimed(store, 2)
    part = join_attempt(store, holding.job.id, 1, timedelta(hours=9))
    assert part is not None
    tower = holding.job.towers[0].name
    kept = part.renew([StageEvent(kind="started", tower=tower, stage=Stage.TRACE, at=0.0)])
    assert kept.job.lease == holding.job.lease and kept.remaining <= MINUTE
    assert store.get(holding.job.id).towers[0].stage is Stage.TRACE


def test_nobody_joins_an_attempt_that_is_over(store: MemoryJobStore) -> None:
    holding = claimed(store, 2)
    assert join_attempt(store, holding.job.id, 2, MINUTE) is None
    holding.hand_back()
    assert join_attempt(store, holding.job.id, 1, MINUTE) is None


def test_who_helps_stops_once_the_attempt_is_anothers(
    make_supervisor: MakeSupervisor, store: MemoryJobStore, worker_dir: Path, pids: Path
) -> None:
    holding = claimed(store, 2)
    part = join_attempt(store, holding.job.id, 1, MINUTE)
    assert part is not None
    call = HostCall(job_id=holding.job.id, attempt=1, hosts=2, address="127.0.0.1", port=1, time_limit_s=1)

    def hand_back_once_it_hangs() -> None:
        if pids.exists() and store.get(holding.job.id).state is JobState.RUNNING:
            holding.hand_back()

    make_supervisor("hang").join(part, rendezvous_of(call), hand_back_once_it_hangs)
    assert store.get(holding.job.id).state is JobState.QUEUED
    assert not list(worker_dir.iterdir())


@pytest.mark.parametrize(("leads", "state"), [(None, JobState.FAILED), (True, JobState.QUEUED)])
def test_hosts_that_nobody_called_are_not_begun_again(
    make_supervisor: MakeSupervisor, store: MemoryJobStore, leads: bool | None, state: JobState
) -> None:
    place = Rendezvous(hosts=2, address="127.0.0.1", port=1, time_limit=MINUTE, leads=leads)
    job = make_supervisor("crash").run(claimed(store, 2), place=place)
    assert job is not None and job.state is state


def test_an_address_that_others_have_for_this_worker_is_told_as_it_is(store: MemoryJobStore) -> None:
    queue = MemoryQueue()
    behind = HostCaller(address="192.0.2.1")  # which no interface here has, as behind a translation
    assert behind.call_hosts(claimed(store, 2).job, queue) is not None
    assert queue.calls[0].address == "192.0.2.1"


def test_a_worker_whose_name_resolves_to_nothing_calls_by_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_RDZV_HOST", raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "nobody.invalid")
    assert HostCaller.from_settings(WorkerSettings()).address == "nobody.invalid"

"""Running the job that a message names, and the sweep."""

import json
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from exporter.spec import Device, Mode, TowerName
from exporter.stages import Stage
from jobs.fleet.tallies import MemoryTallies, Tallies, Tally
from jobs.lease.leases import claim
from jobs.model import JobState
from jobs.queue import MemoryQueue
from jobs.stores.memory_store import MemoryJobStore
from telemetry.choices import LogFormat, LogLevel
from telemetry.logging import configure_logging
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_job
from tests.jobs.lease_monitors import fair_lease_monitor
from worker.heartbeat import close_orphans, release_jobs
from worker.machine.targets import Machine
from worker.supervisor import Supervisor
from worker.tasks import Runner

MakeSupervisor = Callable[..., Supervisor]

MACHINE = Machine(device=Device.CPU, targets=("cpu", "avx2"), architecture="x86_64 avx2", memory=1 << 30)


@pytest.fixture
def queue() -> MemoryQueue:
    return MemoryQueue()


def runner(
    supervisor: Supervisor, store: MemoryJobStore, queue: MemoryQueue, tallies: Tallies | None = None
) -> Runner:
    return Runner(
        store=store,
        queue=queue,
        lease_monitor=fair_lease_monitor(),
        supervisor=supervisor,
        worker="w1",
        lease=MINUTE,
        tallies=tallies or MemoryTallies(),
        machine=MACHINE,
    )


def test_a_message_runs_its_job(
    make_supervisor: MakeSupervisor, store: MemoryJobStore, queue: MemoryQueue
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    runner(make_supervisor("succeed"), store, queue).run(job.id)
    assert store.get(job.id).state is JobState.SUCCEEDED


def test_an_attempt_is_counted(
    make_supervisor: MakeSupervisor, store: MemoryJobStore, queue: MemoryQueue
) -> None:
    job, tallies = make_job(), MemoryTallies()
    store.add(job, CONFIG_TEXT)
    runner(make_supervisor("succeed"), store, queue, tallies).run(job.id)
    assert tallies.read()[Tally(name="attempts", ending="succeeded")] == 1
    compiled = Tally(
        name="stage_sum", tower=TowerName.USER, stage=Stage.COMPILE, mode=Mode.UNIFIED, device=Device.CPU
    )
    assert tallies.read()[compiled] == 0.5


def test_what_a_worker_logs_of_a_stage_names_job_attempt_and_tower(
    make_supervisor: MakeSupervisor,
    store: MemoryJobStore,
    queue: MemoryQueue,
    restored_logging: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    configure_logging(LogFormat.JSON, LogLevel.DEBUG)
    runner(make_supervisor("fail-item"), store, queue).run(job.id)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {(line["job_id"], line["attempt"]) for line in lines} == {(job.id, 1)}
    told = [(line["event"], line.get("tower"), line.get("stage")) for line in lines]
    assert ("stage_finished", "user", "compile") in told and ("tower_failed", "item", "compile") in told
    assert ("rank_line", "user", "trace") in told


def test_a_redelivered_message_does_nothing_when_the_job_is_taken(
    make_supervisor: MakeSupervisor, store: MemoryJobStore, queue: MemoryQueue
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    claim(store, job.id, worker="w2", length=MINUTE)
    before = store.get(job.id)
    runner(make_supervisor("succeed"), store, queue).run(job.id)
    assert store.get(job.id) == before


def test_a_broken_job_is_enqueued_again(
    make_supervisor: MakeSupervisor, store: MemoryJobStore, queue: MemoryQueue
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    runner(make_supervisor("crash"), store, queue).run(job.id)
    assert queue.sent == [job.id]


def sweep(runner: Runner) -> None:
    close_orphans(runner, release_jobs(runner), threading.Event())


def test_the_sweep_enqueues_what_a_dead_worker_held(
    make_supervisor: MakeSupervisor, store: MemoryJobStore, queue: MemoryQueue
) -> None:
    job = make_job()
    store.add(job, CONFIG_TEXT)
    claim(store, job.id, worker="dead", length=timedelta(seconds=-1))
    sweep(runner(make_supervisor("succeed"), store, queue))
    assert (store.get(job.id).state, queue.sent) == (JobState.QUEUED, [job.id])

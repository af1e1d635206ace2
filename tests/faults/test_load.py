"""Very many jobs and pollers, and a service that runs for long; figures go to .slipway/load.md."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import psutil
import pytest

from exporter.spec import ExportSpec
from jobs.ids import JobId
from jobs.model import JobState
from jobs.request import ExportRequest
from tests.faults.conftest import light_spec
from tests.faults.pollers import Polls, poll
from tests.faults.stack import FaultStack, fault_stack

pytestmark = pytest.mark.faults
JOBS, EXPORTED, POLLERS = 10_000, 60, 1_000
POLL_S = 30.0
SOAK_S = 600.0
FIGURES = Path(".slipway/load.md")


def note(line: str) -> None:
    FIGURES.parent.mkdir(exist_ok=True)
    with FIGURES.open("a") as file:
        file.write(f"- {line}\n")


@pytest.fixture
def quiet(tmp_path: Path) -> Iterator[FaultStack]:
    with fault_stack(tmp_path / "s", "light") as stack:
        yield stack


def test_ten_thousand_jobs_and_a_thousand_pollers(quiet: FaultStack) -> None:
    spec = one_light(quiet)
    first = quiet.client.submit(ExportRequest(**dict(spec), force=True)).id
    wait_for_ends(quiet, 1, 60)
    alone = poll(quiet.port, [f"/exports/{first}"], pollers=POLLERS, seconds=POLL_S)
    with standing_workers(quiet):
        before = int(quiet.redis.info("memory")["used_memory"])
        begun = time.monotonic()
        ids = submit_many(quiet, spec, JOBS)
        rate = JOBS / (time.monotonic() - begun)
        each = (int(quiet.redis.info("memory")["used_memory"]) - before) / JOBS
        beside = poll(quiet.port, [f"/exports/{job_id}" for job_id in ids], pollers=POLLERS, seconds=POLL_S)
        with ThreadPoolExecutor(4) as callers:
            list(callers.map(quiet.client.cancel, ids[EXPORTED:]))
    wait_for_ends(quiet, JOBS + 1, 600)
    ended = Counter({state: quiet.store.count(state) for state in JobState})
    note(f"{JOBS:,} jobs accepted at {rate:.0f} a second, {each / 1e3:.1f} kB of Redis each")
    note(f"{POLLERS:,} pollers, nothing else: {told(alone)}; beside {JOBS:,} queued jobs: {told(beside)}")
    note(f"p99 against the empty service: {beside.percentile(0.99) / alone.percentile(0.99):.2f}")
    assert ended == {
        **dict.fromkeys(JobState, 0),
        JobState.SUCCEEDED: EXPORTED + 1,
        JobState.CANCELLED: JOBS - EXPORTED,
    }
    assert set(alone.statuses) | set(beside.statuses) <= {200, 304}


def test_memory_is_flat_however_long_it_runs(tmp_path: Path) -> None:
    """A job every second for ten minutes, a third of them cancelled; jobs are forgotten after one."""
    with fault_stack(tmp_path / "s", "light", settings={"SLIPWAY_JOB_RETENTION": "60"}) as stack:
        spec, samples = one_light(stack), []
        end, number = time.monotonic() + SOAK_S, 0
        while time.monotonic() < end:
            number += 1
            job = stack.client.submit(ExportRequest(**dict(spec), force=True))
            if number % 3 == 0:
                stack.client.cancel(job.id)
            stack.client.page(limit=50)
            samples.append(memory_of(stack))
            time.sleep(1)
    sixth = len(samples) // 6
    growth = {}
    for name in samples[0]:
        early, late = (
            median(each[name] for each in part) for part in (samples[sixth : 2 * sixth], samples[-sixth:])
        )
        growth[name] = late / early
        note(f"{SOAK_S / 60:.0f} min, {number} jobs: {name} {early / 1e6:.1f} MB, later {late / 1e6:.1f} MB")
    assert max(growth.values()) < 1.15, growth


def one_light(stack: FaultStack) -> ExportSpec:
    return light_spec(stack)


def submit_many(stack: FaultStack, spec: ExportSpec, count: int) -> list[JobId]:
    def submit(_: int) -> JobId:
        return stack.client.submit(ExportRequest(**dict(spec), force=True)).id

    with ThreadPoolExecutor(4) as callers:
        return list(callers.map(submit, range(count)))


@contextmanager
def standing_workers(stack: FaultStack) -> Iterator[None]:
    """No worker runs inside the block."""
    for worker in stack.workers:
        worker.end()
    try:
        yield
    finally:
        for worker in stack.workers:
            worker.start()


def wait_for_ends(stack: FaultStack, count: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (ended := sum(stack.store.count(state) for state in JobState if state.is_final)) < count:
        assert time.monotonic() < deadline, f"{ended} of {count} jobs have ended after {seconds:g} s"
        threading.Event().wait(0.2)


def told(polls: Polls) -> str:
    p50, p99 = (polls.percentile(share) * 1e3 for share in (0.5, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms of {len(polls.seconds):,}"


def memory_of(stack: FaultStack) -> dict[str, float]:
    """Bytes: resident of the API and of a worker, used of Redis."""
    resident = {
        name: psutil.Process(stack.programs[name].pid).memory_info().rss for name in ("api", "worker0")
    }
    return {**resident, "redis": float(stack.redis.info("memory")["used_memory"])}

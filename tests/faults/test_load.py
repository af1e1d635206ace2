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
from tests.faults.report import LOAD
from tests.faults.stack import FaultStack, fault_stack

pytestmark = pytest.mark.faults
JOBS, POLLERS = 10_000, 1_000
SUCCEEDING, FAILING = 150, 50  # by light attempts, which send and publish; the others are cancelled
WARM_UP_S, POLL_S, TURNS = 6.0, 15.0, 2
MOST_TIMES_SLOWER = 3.0  # a poll beside all these jobs, at its p99, than one of an empty service
SOAK_S = 600.0


def note(line: str) -> None:
    LOAD.parent.mkdir(exist_ok=True)
    with LOAD.open("a") as file:
        file.write(f"- {line}\n")


@pytest.fixture(scope="module", autouse=True)
def figures() -> None:
    """The figures of this run alone."""
    LOAD.unlink(missing_ok=True)


@pytest.fixture
def stacks(tmp_path: Path) -> Iterator[tuple[FaultStack, FaultStack]]:
    """One stack that gets the jobs, and one that stays empty."""
    with (
        fault_stack(tmp_path / "a", "light") as full,
        fault_stack(tmp_path / "b", "light", workers=1) as empty,
    ):
        yield full, empty


def test_ten_thousand_jobs_and_a_thousand_pollers(stacks: tuple[FaultStack, FaultStack]) -> None:
    full, empty = stacks
    alone_path = f"/exports/{submit_many(empty, here(empty), 1)[0]}"
    wait_for_ends(empty, 1, 60)
    with standing_workers(full):
        before = int(full.redis.info("memory")["used_memory"])
        begun = time.monotonic()
        expected = submit_all(full)
        rate = JOBS / (time.monotonic() - begun)
        each = (int(full.redis.info("memory")["used_memory"]) - before) / JOBS
        paths = [f"/exports/{job_id}" for job_id in expected]
        alone, beside = in_turn((empty.port, [alone_path]), (full.port, paths))
        stopped = [job_id for job_id, state in expected.items() if state is JobState.CANCELLED]
        with ThreadPoolExecutor(4) as callers:
            list(callers.map(full.client.cancel, stopped))
    wait_for_ends(full, JOBS, 900)
    ratio = beside.percentile(0.99) / alone.percentile(0.99)
    note(f"{JOBS:,} jobs accepted at {rate:.0f} a second, {each / 1e3:.1f} kB of Redis each")
    note(
        f"{POLLERS:,} pollers of an empty service: {describe_polls(alone)}; "
        f"beside {JOBS:,} queued jobs: {describe_polls(beside)}"
    )
    note(f"p99 of a poll beside them, as a ratio to that of the empty service: {ratio:.2f}")
    ended = Counter(expected.values())
    note(f"how the {JOBS:,} ended: " + ", ".join(f"{count:,} {state}" for state, count in ended.items()))
    assert {job_id: full.store.get(job_id).state for job_id in expected} == expected
    assert set(alone.statuses) | set(beside.statuses) <= {200, 304}
    assert ratio <= MOST_TIMES_SLOWER


def in_turn(*services: tuple[int, list[str]]) -> list[Polls]:
    """Poll each service in turn and in reverse, so that other load on the machine affects all of them."""
    polls = [Polls() for _ in services]
    for port, paths in services:
        poll(port, paths, pollers=POLLERS, seconds=WARM_UP_S)
    both = list(zip(services, polls, strict=True))
    for turn in range(TURNS):
        for (port, paths), of in both if turn % 2 == 0 else reversed(both):
            of.add(poll(port, paths, pollers=POLLERS, seconds=POLL_S))
    return polls


def submit_all(stack: FaultStack) -> dict[JobId, JobState]:
    """Return all jobs, each with the state in which it must end."""
    spec, weights = here(stack), stack.folder / "weights-that-will-be-lost"
    weights.write_bytes(b"weights")
    lost = spec.model_copy(update={"checkpoint_uri": str(weights)})
    wanted = (
        (spec, SUCCEEDING, JobState.SUCCEEDED),
        (lost, FAILING, JobState.FAILED),
        (spec, JOBS - SUCCEEDING - FAILING, JobState.CANCELLED),
    )
    jobs = {job_id: state for asked, count, state in wanted for job_id in submit_many(stack, asked, count)}
    weights.unlink()  # before the workers go on
    return jobs


def test_memory_is_flat_however_long_it_runs(tmp_path: Path) -> None:
    """A job every second for ten minutes, a third of them cancelled; jobs are forgotten after one."""
    with fault_stack(tmp_path / "s", "light", settings={"SLIPWAY_JOB_RETENTION": "60"}) as stack:
        spec, samples = light_spec(stack), []
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


def here(stack: FaultStack) -> ExportSpec:
    """A light export of local sources: listing them in a bucket would take longer than the rest."""
    weights = stack.folder / "weights"
    weights.write_bytes(b"weights")
    sources = dict.fromkeys(("checkpoint_uri", "item_input_uri", "sample_input_uri"), str(weights))
    return light_spec(stack).model_copy(update=sources)


def submit_many(stack: FaultStack, spec: ExportSpec, count: int) -> list[JobId]:
    def submit(_: int) -> JobId:
        return JobId(stack.client.submit(ExportRequest(**dict(spec), force=True)).id)

    with ThreadPoolExecutor(4) as callers:
        return list(callers.map(submit, range(count)))


@contextmanager
def standing_workers(stack: FaultStack) -> Iterator[None]:
    """Stop all workers inside the block."""
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


def describe_polls(polls: Polls) -> str:
    p50, p99 = (polls.percentile(share) * 1e3 for share in (0.5, 0.99))
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms of {len(polls.seconds):,}"


def memory_of(stack: FaultStack) -> dict[str, float]:
    """Return bytes: resident memory of the API and of a worker, and memory used by Redis."""
    resident = {
        name: psutil.Process(stack.programs[name].pid).memory_info().rss for name in ("api", "worker0")
    }
    return {**resident, "redis": float(stack.redis.info("memory")["used_memory"])}

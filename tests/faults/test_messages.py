"""Jobs whose messages are lost or repeated, and jobs that kill their workers."""

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from exporter.stages import Stage
from jobs.celery_queue import QUEUE, make_celery
from jobs.ids import JobId
from jobs.model import JobState
from processes.settings import inherited_environment
from tests.faults.cells import HALF, PUBLISHED, VERIFY, Cell, Point, one_tower, result_of
from tests.faults.conftest import light_spec
from tests.faults.faults import (
    Scene,
    kill_attempt,
    kill_worker,
    lose_messages,
    repeat_messages,
    stall_workers,
)
from tests.faults.holding import Hold
from tests.faults.invariants import broken
from tests.faults.observer import wait_for_end
from tests.faults.programs import Program, python, wait_until
from tests.faults.stack import BUCKET, FaultStack, fault_stack

pytestmark = pytest.mark.faults
QUEUED = Point(None)
_FAILED = frozenset({JobState.FAILED})


@contextmanager
def standing(stack: FaultStack) -> Iterator[None]:
    """Pause all workers inside the block."""
    for worker in stack.workers:
        worker.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in stack.workers:
            worker.signal(signal.SIGCONT)


@pytest.mark.parametrize("tamper", [lose_messages, repeat_messages], ids=["lost", "thrice"])
def test_a_message_may_be_lost_or_come_thrice(
    light: FaultStack, tamper: Callable[[FaultStack], None]
) -> None:
    begun = time.monotonic()
    with standing(light):
        job_id = light.submit(light_spec(light))
        tamper(light)
    job = wait_for_end(light.observer, job_id, 60)
    cell = Cell("message lost" if tamper is lose_messages else "message delivered thrice", QUEUED)
    assert result_of(cell, job, light, begun).broken == ()
    assert job.attempt == 1


def test_a_worker_that_hears_nothing_fails_its_probe(light: FaultStack) -> None:
    begun = time.monotonic()
    app = make_celery(f"redis://127.0.0.1:{light.redis_proxy.port}/0")
    answers = app.control.cancel_consumer(QUEUE, reply=True, timeout=10, limit=len(light.workers))
    app.close()
    assert len(answers) == len(light.workers)
    job_id = light.submit(light_spec(light))
    for worker in light.workers:
        wait_until(f"{worker.name} fails its probe", partial(_fails_its_probe, worker), 30)
        worker.kill()  # as whoever asks the probe does
    light.heal()
    job = wait_for_end(light.observer, job_id, 60)
    assert result_of(Cell("workers hear nothing, look alive", QUEUED), job, light, begun).broken == ()


@pytest.mark.parametrize("point", [VERIFY, HALF], ids=str)
def test_a_job_that_ends_every_attempt_fails_and_takes_no_worker_with_it(
    light: FaultStack, point: Point
) -> None:
    begun, workers = time.monotonic(), [worker.pid for worker in light.workers]
    job_id = _submit_held(light, point)
    for attempt in (1, 2, 3):  # each is asked for before the one before it is ended
        _break_again(light, job_id, attempt, kill_attempt, point)
    job = wait_for_end(light.observer, job_id, 60)
    assert result_of(Cell("every attempt is killed", point, _FAILED), job, light, begun).broken == ()
    assert (job.attempt, [worker.pid for worker in light.workers]) == (3, workers)


@pytest.mark.parametrize("point", [VERIFY, HALF], ids=str)
def test_a_job_that_ends_its_workers_gets_two_of_them(light: FaultStack, point: Point) -> None:
    begun, job_id = time.monotonic(), _submit_held(light, point)
    for attempt in (1, 2):
        _break_again(light, job_id, attempt, kill_worker, point)
    job = wait_for_end(light.observer, job_id, 60)
    assert result_of(Cell("every worker is killed", point, _FAILED), job, light, begun).broken == ()


def test_what_the_last_worker_published_before_it_died_stands(light: FaultStack) -> None:
    begun, job_id = time.monotonic(), _submit_held(light, PUBLISHED)
    _break_again(light, job_id, 1, kill_worker, PUBLISHED)
    scene = _held(light, job_id, 2)
    worker = scene.worker
    worker.signal(signal.SIGSTOP)  # it will not hear of what its attempt does
    light.hold.release()
    wait_until("there is a manifest", lambda: _has_manifest(light, job_id), 20)
    worker.kill()
    worker.start()
    job = wait_for_end(light.observer, job_id, 60)
    cell = Cell("last worker is killed when it has published", PUBLISHED)
    assert result_of(cell, job, light, begun).broken == ()


def test_an_attempt_that_does_not_ask_whose_its_job_is_would_be_noticed(tmp_path: Path) -> None:
    with fault_stack(tmp_path / "s", "reckless") as stack:
        job_id = _submit_held(stack, Point(Stage.PUBLISH))
        stall_workers(_held(stack, job_id, 1))
        wait_for_end(stack.observer, job_id, 60)
        assert "after the lease had ended" in "; ".join(broken(stack, job_id))


def _submit_held(stack: FaultStack, point: Point) -> JobId:
    """Submit a job whose first attempt stops at the point."""
    assert point.stage is not None
    stack.hold.ask(Hold(stage=point.stage, kind=point.kind))
    return stack.submit(one_tower(light_spec(stack)))


def _held(stack: FaultStack, job_id: JobId, attempt: int) -> Scene:
    wait_until(f"attempt {attempt} is held", stack.hold.held, 60)
    held = stack.hold.held()
    assert held is not None and held.attempt == attempt
    return Scene(stack, job_id, held)


def _break_again(
    stack: FaultStack, job_id: JobId, attempt: int, fault: Callable[[Scene], None], point: Point
) -> None:
    """Break an attempt where it is held; the next one will stop there too."""
    scene = _held(stack, job_id, attempt)
    assert point.stage is not None
    stack.hold.ask(Hold(stage=point.stage, kind=point.kind, attempts=(attempt + 1,)))
    fault(scene)


def _has_manifest(stack: FaultStack, job_id: JobId) -> bool:
    found = stack.s3().list_objects_v2(Bucket=BUCKET, Prefix=f"out/{job_id}/manifest.json")
    return bool(found.get("Contents"))


def _fails_its_probe(worker: Program) -> bool:
    probe = subprocess.run(
        python("worker.alive"),
        check=False,
        env=inherited_environment(worker.environment),
        capture_output=True,
    )
    return probe.returncode != 0

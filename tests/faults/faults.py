"""The faults: each breaks something while an attempt is held at a stage, and repairs it."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from jobs.celery_queue import CeleryQueue, make_celery, message_lists
from jobs.ids import JobId
from tests.faults.commands import DISK_MB, LEASE_S
from tests.faults.holding import Held
from tests.faults.programs import Program, wait_until
from tests.faults.s3 import Order
from tests.faults.stack import FaultStack

OVER_THE_LEASE_S = LEASE_S + 3.0
LONG_CUT_S = 30.0


@dataclass(frozen=True)
class Scene:
    """A job whose attempt is held at a point."""

    stack: FaultStack
    job_id: JobId
    held: Held

    @property
    def worker(self) -> Program:
        """The worker that holds the job."""
        lease = self.stack.store.get(self.job_id).lease
        assert lease is not None
        return next(each for each in self.stack.workers if f"-{each.pid}-" in lease.worker)


# Returns when what was broken is mended, as far as somebody would mend it. What was held goes on then, but
# for what somebody is to kill: that cannot end by itself.
Fault = Callable[[Scene], None]


def kill_tower(scene: Scene) -> None:
    """Kill -9 of the process that exports the tower."""
    os.kill(scene.held.pid, signal.SIGKILL)


def kill_rank(scene: Scene) -> None:
    """Kill -9 of a rank."""
    rank = next(each for each in reversed(_family(scene)) if each.name().startswith("rank "))
    rank.kill()


def kill_attempt(scene: Scene) -> None:
    """Kill -9 of the process that ranks are forked from, or of the light attempt."""
    attempt = next(each for each in reversed(_family(scene)) if "processes.guard" not in _command(each))
    attempt.kill()


def kill_guard(scene: Scene) -> None:
    """Kill -9 of the process that ends the attempt's process family."""
    guard = next(each for each in _family(scene) if "processes.guard" in _command(each))
    guard.kill()
    time.sleep(1)


def kill_worker(scene: Scene) -> None:
    """Kill -9 of the worker; another is started, as a supervisor of containers would do."""
    worker = scene.worker
    worker.kill()
    time.sleep(1)
    worker.start()


def kill_worker_and_set_clock_back(scene: Scene) -> None:
    """Kill -9 of the worker, whose lease then ends an hour later because the clock was set back."""
    worker = scene.worker
    worker.kill()
    scene.stack.clock(-3600)
    worker.start()


def terminate_worker(scene: Scene) -> None:
    """SIGTERM of the worker, which hands the job back."""
    worker = scene.worker
    worker.end()
    scene.stack.hold.release()
    worker.start()


def stall_worker(scene: Scene) -> None:
    """The worker stands still for longer than its lease while its ranks go on; then it wakes."""
    worker = scene.worker
    worker.signal(signal.SIGSTOP)
    time.sleep(OVER_THE_LEASE_S)
    scene.stack.hold.release()
    time.sleep(1)  # in which ranks that did not ask whose job it is would publish
    worker.signal(signal.SIGCONT)


def stall_workers(scene: Scene) -> None:
    """All workers stand still for longer than a lease, so nobody takes the job; its ranks go on."""
    for worker in scene.stack.workers:
        worker.signal(signal.SIGSTOP)
    time.sleep(OVER_THE_LEASE_S)
    scene.stack.hold.release()
    time.sleep(2)  # in which ranks that did not ask whose job it is would write
    for worker in scene.stack.workers:
        worker.signal(signal.SIGCONT)


def kill_api(scene: Scene) -> None:
    """Kill -9 of the API."""
    api = scene.stack.programs["api"]
    api.kill()
    scene.stack.hold.release()
    time.sleep(1)
    api.start()
    scene.stack.wait_until_ready()


def restart_redis(scene: Scene) -> None:
    """Kill -9 of Redis, started again on its append-only file."""
    redis = scene.stack.programs["redis"]
    redis.kill()
    scene.stack.hold.release()
    time.sleep(2)
    redis.start()


def cut_redis(scene: Scene, seconds: float = OVER_THE_LEASE_S) -> None:
    """Cut the connections to Redis; the ranks go on after the lease has ended."""
    scene.stack.redis_proxy.cut()
    time.sleep(seconds)
    scene.stack.hold.release()
    time.sleep(1)
    scene.stack.redis_proxy.heal()


def cut_redis_twice(scene: Scene) -> None:
    """Cut the connections to Redis, and once more after the lease has been renewed."""
    scene.stack.redis_proxy.cut()
    time.sleep(OVER_THE_LEASE_S)
    scene.stack.redis_proxy.heal()
    wait_until("the lease is renewed", lambda: _is_held(scene), 20)
    cut_redis(scene)


def cut_redis_long(scene: Scene) -> None:
    """Cut the connections to Redis for thirty seconds."""
    cut_redis(scene, LONG_CUT_S)


def reset_redis(scene: Scene) -> None:
    """Every connection to Redis is reset, three times."""
    for _ in range(3):
        scene.stack.redis_proxy.reset()
        time.sleep(0.3)
    scene.stack.hold.release()


def fill_redis(scene: Scene) -> None:
    """Redis is out of memory and refuses every write."""
    scene.stack.redis.config_set("maxmemory", 1)
    scene.stack.hold.release()
    time.sleep(4)
    scene.stack.redis.config_set("maxmemory", 0)


def jump_clock(scene: Scene) -> None:
    """The clock of leases jumps an hour ahead: all of them have expired."""
    scene.stack.clock(3600)
    scene.stack.hold.release()


def jump_clock_back(scene: Scene) -> None:
    """The clock of leases jumps an hour back."""
    scene.stack.clock(-3600)
    scene.stack.hold.release()


def deliver_again(scene: Scene) -> None:
    """Both workers get the message of a job that one of them is running, three times."""
    app = make_celery(f"redis://127.0.0.1:{scene.stack.redis_proxy.port}/0")
    queue = CeleryQueue(app, scene.stack.redis)
    for _ in range(3):
        queue.enqueue(scene.job_id)
    app.close()
    time.sleep(2)
    scene.stack.hold.release()


def cut_s3(scene: Scene) -> None:
    """Cut the connections to the object store."""
    scene.stack.s3_proxy.cut()
    scene.stack.hold.release()
    time.sleep(8)
    scene.stack.s3_proxy.heal()


def reset_s3(scene: Scene) -> None:
    """Every connection to the object store is reset, again and again."""
    scene.stack.hold.release()
    for _ in range(10):
        scene.stack.s3_proxy.reset()
        time.sleep(0.2)


def slow_s3(scene: Scene) -> None:
    """The object store takes half a second for every packet, and 200 kB/s."""
    scene.stack.s3_proxy.delay_s, scene.stack.s3_proxy.bytes_per_s = 0.5, 200e3
    scene.stack.hold.release()
    time.sleep(15)
    scene.stack.s3_proxy.heal()


def _refusing(status: int, code: str, *, seconds: float) -> Fault:
    def fault(scene: Scene) -> None:
        scene.stack.order(Order(status=status, code=code))
        scene.stack.hold.release()
        time.sleep(seconds)
        scene.stack.order(None)

    return fault


s3_500 = _refusing(500, "InternalError", seconds=6)
s3_503 = _refusing(503, "SlowDown", seconds=12)


def s3_denied(scene: Scene) -> None:
    """The object store denies access until the job has ended."""
    scene.stack.order(Order(status=403, code="AccessDenied"))
    scene.stack.hold.release()
    wait_until("the job has ended", lambda: _ended(scene), 90)
    scene.stack.order(None)


def s3_damages(scene: Scene) -> None:
    """The object store changes a byte of one package."""
    scene.stack.order(Order(damage=True, methods=("PUT",), path="aoti_model.pt2", times=1))
    scene.stack.hold.release()
    wait_until("the attempt has ended", lambda: _attempt_over(scene), 90)
    scene.stack.order(None)


def fill_disk(scene: Scene) -> None:
    """The disk that the attempt works on is full, until the job is tried again."""
    worker = scene.worker
    filler = scene.stack.work_dir / "filler"
    seen = _as_seen_by(worker, filler)
    with seen.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for _ in range(DISK_MB + 1):
            file.write(bytes(1 << 20))
    scene.stack.hold.release()
    wait_until("the attempt has ended", lambda: _attempt_over(scene), 90)
    seen.unlink()


def cancel_between(scene: Scene) -> None:
    """Both workers are stopped, which hands the job back; it is cancelled, and the workers start again."""
    workers = sorted(scene.stack.workers, key=lambda each: each is scene.worker)  # the idle one first
    for worker in workers:
        worker.end()
    assert scene.stack.client.cancel(scene.job_id).cancel_requested
    scene.stack.hold.release()
    for worker in workers:
        worker.start()


def cancel_after_death(scene: Scene) -> None:
    """Kill -9 of the worker; the job is cancelled before any other worker has noticed."""
    worker = scene.worker
    worker.kill()
    scene.stack.client.cancel(scene.job_id)
    scene.stack.hold.release()
    worker.start()


def _is_held(scene: Scene) -> bool:
    job, now = scene.stack.store.get(scene.job_id), scene.stack.store.now()
    return job.lease is not None and not job.has_expired(now)


def _as_seen_by(worker: Program, path: Path) -> Path:
    return Path(f"/proc/{worker.pid}/root{path}")


def _attempt_over(scene: Scene) -> bool:
    job = scene.stack.store.get(scene.job_id)
    return job.state.is_final or job.lease is None or job.attempt > scene.held.attempt


def _ended(scene: Scene) -> bool:
    return scene.stack.store.get(scene.job_id).state.is_final


def _family(scene: Scene) -> list[psutil.Process]:
    """The processes of the attempt, from the one that is held up to the one below the worker."""
    process, family = psutil.Process(scene.held.pid), []
    while process.pid != scene.worker.pid:
        family.append(process)
        parent = process.parent()
        assert parent is not None
        process = parent
    return family


def _command(process: psutil.Process) -> str:
    return " ".join(process.cmdline())


def lose_messages(stack: FaultStack) -> None:
    """Delete every waiting message."""
    stack.redis.delete(*message_lists())


def repeat_messages(stack: FaultStack) -> None:
    """Deliver every waiting message three times."""
    for name in message_lists():
        for text in stack.redis.lrange(name, 0, -1):
            stack.redis.rpush(name, text, text)


NAMES: Mapping[str, Fault] = {
    "kill -9 of the tower's process": kill_tower,
    "kill -9 of a rank": kill_rank,
    "kill -9 of the attempt": kill_attempt,
    "kill -9 of the guard": kill_guard,
    "kill -9 of the worker": kill_worker,
    "kill -9 of the worker, clock an hour back": kill_worker_and_set_clock_back,
    "SIGTERM of the worker": terminate_worker,
    "worker stands still": stall_worker,
    "all workers stand still": stall_workers,
    "kill -9 of the API": kill_api,
    "Redis killed and restarted": restart_redis,
    "Redis cut off": cut_redis,
    "Redis cut off twice": cut_redis_twice,
    "Redis cut off for 30 s": cut_redis_long,
    "Redis resets": reset_redis,
    "Redis out of memory": fill_redis,
    "clock an hour ahead": jump_clock,
    "clock an hour back": jump_clock_back,
    "job given to two, thrice": deliver_again,
    "S3 cut off": cut_s3,
    "S3 resets": reset_s3,
    "S3 slow": slow_s3,
    "S3 answers 500": s3_500,
    "S3 answers 503": s3_503,
    "S3 denies access": s3_denied,
    "S3 damages a file": s3_damages,
    "disk full": fill_disk,
    "cancelled between two attempts": cancel_between,
    "cancelled when its worker is dead": cancel_after_death,
}

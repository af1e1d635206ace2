"""Faults of the worker's resident process, which forks attempts: idle, and while an attempt of its runs."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from exporter.spec import ExportSpec
from jobs.ids import JobId
from jobs.model import JobState
from tests.faults.cells import RESULTS, Result, one_tower
from tests.faults.commands import FORKED
from tests.faults.conftest import real_spec
from tests.faults.invariants import broken
from tests.faults.observer import wait_for_end
from tests.faults.programs import wait_until
from tests.faults.stack import FaultStack, fault_stack

pytestmark = pytest.mark.faults

IDLE, RUNNING = "idle", "an attempt runs"
_READY_S, _END_S = 60.0, 120.0
_GROUPS = Path("/sys/fs/cgroup/memory")
_NO_MEMORY = 4096  # bytes
# Read by any Python as it starts. Only the resident process leaks, once it is told to.
_LEAK = """
import os, sys
if "worker.resident.server" in sys.orig_argv[:5]:
    kept, resident, told = [], os.getpid(), {told!r}
    def leak():
        if os.getpid() == resident and os.path.exists(told):
            kept.append(b"x" * (256 << 20))
    os.register_at_fork(before=leak)
"""


@dataclass(frozen=True)
class Scene:
    """A worker with a resident process that is ready to fork."""

    stack: FaultStack
    resident: psutil.Process
    leaking: Path  # the resident process leaks while this file exists

    def may_use(self, undo: ExitStack, limit: int) -> None:
        """Let the kernel kill the resident process where it takes more than `limit` bytes from now on."""
        group = _GROUPS / f"slipway-test-{self.resident.pid}"
        group.mkdir()
        undo.callback(_remove_group, group)
        (group / "memory.limit_in_bytes").write_text(str(limit))
        (group / "cgroup.procs").write_text(str(self.resident.pid))


Fault = Callable[[Scene, ExitStack], None]  # breaks it; what is to be undone in the end goes on the stack


def kill(scene: Scene, undo: ExitStack) -> None:
    """Kill -9."""
    scene.resident.kill()


def crash(scene: Scene, undo: ExitStack) -> None:
    """An access to memory that is not there."""
    scene.resident.send_signal(signal.SIGSEGV)


def run_out_of_memory(scene: Scene, undo: ExitStack) -> None:
    """It gets no more memory, and the kernel kills it as it asks for some: at the next order."""
    scene.may_use(undo, _NO_MEMORY)


def leak(scene: Scene, undo: ExitStack) -> None:
    """It keeps a quarter of a gigabyte with every attempt until it is replaced, for no other reason."""
    scene.leaking.touch()
    undo.callback(scene.leaking.unlink)


def hang(scene: Scene, undo: ExitStack) -> None:
    """It stands still, and answers no order."""
    scene.resident.suspend()


NAMES = {
    "kill -9 of the resident process": kill,
    "crash of the resident process": crash,
    "OOM kill of the resident process": run_out_of_memory,
    "resident process leaks": leak,
    "resident process hangs": hang,
}
CELLS = [(fault, point) for fault in NAMES for point in (IDLE, RUNNING)]


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultStack]:
    """A stack of one worker whose attempts are forks of its resident process; the code is in the cache."""
    folder = tmp_path_factory.mktemp("f")
    (folder / "sitecustomize.py").write_text(_LEAK.format(told=str(folder / "leaking")))
    # A fork on a busy machine must not be taken for a hang, for which there is a quarter of the lease.
    settings = {"PYTHONPATH": str(folder), "SLIPWAY_LEASE": "20"}
    with fault_stack(folder / "s", FORKED, workers=1, settings=settings) as stack:
        warm = stack.submit(one_tower(real_spec(stack)))
        assert wait_for_end(stack.observer, warm, 900).state is JobState.SUCCEEDED
        yield stack


@pytest.mark.parametrize(("fault", "point"), CELLS, ids=[" @ ".join(each) for each in CELLS])
def test_nothing_is_lost_where_the_resident_process_fails(
    forking: FaultStack, fault: str, point: str
) -> None:
    if fault.startswith("OOM") and not os.access(_GROUPS, os.W_OK):
        pytest.skip("this process may not limit the memory of others")
    assert run(forking, fault, point).broken == ()


def run(stack: FaultStack, fault: str, point: str) -> Result:
    """Break the resident process, and see two jobs to their ends: one that meets the fault, and the next."""
    leaking = stack.folder.parent / "leaking"
    spec, scene = one_tower(real_spec(stack)), Scene(stack, wait_for_resident(stack), leaking)
    begun, wrong = time.monotonic(), list[str]()
    failures = count_failures(stack)
    with ExitStack() as undo:
        if point == IDLE:
            NAMES[fault](scene, undo)
            wrong += see_through(stack, spec)
        else:
            with running_attempt(stack, spec) as job_id:
                NAMES[fault](scene, undo)
            wrong += check_end(stack, job_id)
        wrong += see_through(stack, spec)
        if scene.resident.is_running() and scene.resident.status() != psutil.STATUS_ZOMBIE:
            wrong.append("the process that failed is still there")
    if wait_for_resident(stack).pid == scene.resident.pid:
        wrong.append("it was not replaced")
    if NAMES[fault] is leak and count_failures(stack) > failures:
        wrong.append("it was not replaced for its memory")
    seconds = round(time.monotonic() - begun, 1)
    result = Result(fault, point, stack.kind, str(JobState.SUCCEEDED), 1, seconds, tuple(wrong))
    RESULTS.append(result)
    return result


def count_failures(stack: FaultStack) -> int:
    """Return how often the worker has found its resident process dead or hanging."""
    return stack.workers[0].log.read_text().count("resident_process_failed")


def see_through(stack: FaultStack, spec: ExportSpec) -> list[str]:
    """Submit a job, wait for its end, and return what is wrong with it."""
    return check_end(stack, stack.submit(spec))


def check_end(stack: FaultStack, job_id: JobId) -> list[str]:
    """Wait for the end of a job, which is to succeed at its first attempt; return what is wrong."""
    job = wait_for_end(stack.observer, job_id, _END_S)
    wrong = broken(stack, job_id)
    if job.state is not JobState.SUCCEEDED or job.attempt != 1:
        wrong.append(f"it ended {job.state} after {job.attempt} attempts: {job.failure}")
    return wrong


@contextmanager
def running_attempt(stack: FaultStack, spec: ExportSpec) -> Iterator[JobId]:
    """Submit a job, and let its attempt stand still inside, in the middle of a stage."""
    job_id = stack.submit(spec)
    wait_until("the attempt begins", lambda: stack.store.get(job_id).attempt, _READY_S)
    worker = psutil.Process(stack.workers[0].pid)
    wait_until("its processes are there", lambda: attempt_of(worker), _READY_S)
    processes = attempt_of(worker)
    for each in processes:
        each.suspend()
    yield job_id
    for each in processes:
        each.resume()


def attempt_of(worker: psutil.Process) -> list[psutil.Process]:
    """Return the processes of the attempt that is a fork of the worker's resident process."""
    found = [each for each in worker.children(recursive=True) if each.name() == "attempt"]
    return [process for each in found for process in (each, *each.children(recursive=True))]


def wait_for_resident(stack: FaultStack) -> psutil.Process:
    """Return the worker's resident process once it waits for orders, from when on it ignores its children."""
    worker = psutil.Process(stack.workers[0].pid)
    found: list[psutil.Process] = []

    def is_ready() -> bool:
        found[:] = [each for each in worker.children() if each.name() == "resident"]
        return bool(found) and bool(_ignored_signals(found[0].pid) & 1 << (signal.SIGCHLD - 1))

    wait_until("the resident process is ready", is_ready, _READY_S, stack.workers[0].log)
    return found[0]


def _ignored_signals(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigIgn")).split()[1], 16)


def _remove_group(group: Path) -> None:
    wait_until("nobody is in the group", lambda: not (group / "cgroup.procs").read_text(), 10.0)
    assert "oom_kill 0\n" not in (group / "memory.oom_control").read_text(), "the kernel killed nobody"
    group.rmdir()

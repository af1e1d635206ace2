"""The resident process: attempts that it forks are confined like others, and survive what befalls it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from jobs.lease.leases import Holding
from processes.guarded_process import GuardedProcess
from processes.settings import inherited_environment
from tests.jobs.factories import CONFIG_TEXT
from tests.worker.conftest import ATTEMPT_ENVIRONMENT
from worker.attempt.workspace import Workspace, open_workspace
from worker.launch import WITHOUT_THREADS, RanksLauncher, make_resident
from worker.resident import client
from worker.resident.client import ForkedGuard, ResidentProcess
from worker.settings import AttemptEnvironmentSettings

pytestmark = pytest.mark.slow

SECRET, OF_ATTEMPT = "planted-secret-key", "planted-key-of-the-attempt"
Start = Callable[..., GuardedProcess]


@pytest.fixture(scope="module")
def resident() -> Iterator[ResidentProcess]:
    """A resident process that has imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("SLIPWAY_REDIS_URL", f"redis://:{SECRET}@127.0.0.1/0")
        process = make_resident(1000, AttemptEnvironmentSettings())
    process.start()
    yield process
    process.stop()


@pytest.fixture
def silent_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An object store that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OF_ATTEMPT)
        yield


@pytest.fixture
def workspace(holding: Holding, worker_dir: Path, tmp_path: Path, silent_store: None) -> Iterator[Workspace]:
    """A workspace whose attempt waits for its checkpoint."""
    with open_workspace(holding.job, CONFIG_TEXT, worker_dir) as opened:
        request = opened.read_request()
        where = {"checkpoint_uri": "s3://silent/model.ckpt-0", "output_uri": str(tmp_path)}
        opened.write_request(request.model_copy(update={"spec": request.spec.model_copy(update=where)}))
        yield opened


@pytest.fixture
def start(resident: ResidentProcess, workspace: Workspace) -> Iterator[Start]:
    started = []

    def begin(by: ResidentProcess = resident, ranks: int = 1) -> GuardedProcess:
        process = RanksLauncher(ATTEMPT_ENVIRONMENT, resident=by).start(workspace, ranks=ranks)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.stop()


def family(process: GuardedProcess) -> list[psutil.Process]:
    return psutil.Process(process.guard.pid).children(recursive=True)


def until_reading(process: GuardedProcess, ranks: int = 1) -> list[psutil.Process]:
    """Return the processes of an attempt whose ranks wait for their checkpoint."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.exit_status() is None, process.last_lines(20)
        events = list(process.log.parent.glob("events-*.jsonl"))
        if len(events) == ranks and len(family(process)) >= ranks + 1:
            return family(process)
        time.sleep(0.05)
    raise AssertionError(process.last_lines(20))


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


def test_it_has_one_thread_and_no_secret(resident: ResidentProcess, start: Start) -> None:
    until_reading(start())
    assert resident.pid
    assert psutil.Process(resident.pid).num_threads() == 1
    assert SECRET.encode() not in Path(f"/proc/{resident.pid}/environ").read_bytes()


def test_an_attempt_is_confined_and_only_its_ranks_know_its_secrets(start: Start) -> None:
    process = start(ranks=2)
    assert isinstance(process.guard, ForkedGuard)
    names = [each.name() for each in until_reading(process, ranks=2)]
    assert sorted(names) == ["attempt", "rank 0", "rank 1", "runners"]
    for each in family(process):
        limits = Path(f"/proc/{each.pid}/limits").read_text()
        told = {line[:26].strip(): line[26:].split()[:2] for line in limits.splitlines()}
        assert told["Max core file size"] == ["0", "0"]
        assert told["Max file size"] == [str(1 << 40)] * 2
        assert Path(f"/proc/{each.pid}/oom_score_adj").read_text().strip() == "500"
        assert holds(each.pid, OF_ATTEMPT) is (each.name() != "runners"), each.name()
        files = [str(file.readlink()) for file in Path(f"/proc/{each.pid}/fd").iterdir()]
        assert not any("memfd" in file for file in files), files
    assert not holds(process.guard.pid, OF_ATTEMPT)
    assert os.getsid(process.guard.pid) == process.guard.pid


def holds(pid: int, text: str) -> bool:
    """Return whether a process has a text in its writable memory."""
    with Path(f"/proc/{pid}/mem").open("rb") as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, access, *_ = line.split()
            begin, end = (int(each, 16) for each in span.split("-"))
            if not access.startswith("rw"):
                continue
            memory.seek(begin)
            with suppress(OSError):
                if text.encode() in memory.read(end - begin):
                    return True
    return False


def test_an_attempt_ends_on_request_with_all_it_started(start: Start) -> None:
    process = start()
    processes = until_reading(process)
    process.stop()
    assert process.exit_status() == 128 + signal.SIGTERM
    assert_gone(processes)


def test_an_attempt_that_ends_by_itself_leaves_its_outcome(start: Start, workspace: Workspace) -> None:
    request = workspace.read_request()
    here = request.spec.model_copy(update={"checkpoint_uri": str(workspace.path)})
    workspace.write_request(request.model_copy(update={"spec": here}))
    process = start()
    assert process.wait(timedelta(seconds=60)) == 0
    outcome = workspace.read_outcome()
    assert outcome and outcome.failure and outcome.failure.code == "invalid_pipeline_config"
    assert process.exit_status() == 0
    assert "export_failed" in process.log.read_text()


def test_a_killed_guard_takes_its_attempt_with_it(start: Start) -> None:
    process = start()
    processes = until_reading(process)
    os.kill(process.guard.pid, signal.SIGKILL)
    assert process.wait(timedelta(seconds=10)) == 128 + signal.SIGKILL
    assert_gone(processes)


def test_an_attempt_outlives_the_resident_process_and_the_next_one_starts(
    start: Start, resident: ResidentProcess
) -> None:
    process = start()
    until_reading(process)
    before = resident.pid
    assert before
    os.kill(before, signal.SIGKILL)  # as the kernel does when memory is short
    other = start()
    assert isinstance(other.guard, ForkedGuard) or other.exit_status() is None
    until_reading(process)
    assert resident.pid != before
    process.stop()
    assert process.exit_status() == 128 + signal.SIGTERM


def test_a_hanging_process_is_replaced_and_its_attempt_begins_another_way(
    start: Start, resident: ResidentProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    start().stop()  # it is ready
    before = resident.pid
    assert before
    monkeypatch.setattr(client, "_FORK_S", 1.0)
    os.kill(before, signal.SIGSTOP)
    process = start()
    assert isinstance(process.guard, subprocess.Popen)
    assert resident.pid != before and not psutil.pid_exists(before)


def test_one_that_hangs_before_it_is_ready_is_replaced(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = make_resident(10, AttemptEnvironmentSettings(), lease=timedelta(seconds=2))
    slow.start()
    before = slow.pid
    assert before
    os.kill(before, signal.SIGSTOP)
    begun = time.monotonic()
    assert isinstance(start(slow).guard, subprocess.Popen)
    assert time.monotonic() - begun < 10.0, "the lease would have ended"
    assert slow.pid == before, "it may still be importing"
    monkeypatch.setattr(client, "_STARTING_S", 0.0)
    assert isinstance(start(slow).guard, subprocess.Popen)
    assert slow.pid != before and not psutil.pid_exists(before)
    slow.stop()


@pytest.mark.parametrize("reason", ["threads", "GPU"])
def test_one_that_could_not_be_forked_well_ends(reason: str) -> None:
    spoil = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    if reason == "GPU":
        spoil = "server.torch.cuda.is_initialized = lambda: True"
    program = f"import socket, threading, time; from worker.resident import server; {spoil}; "
    program += "server.serve(socket.socketpair()[0])"
    command, variables = [sys.executable, "-c", program], inherited_environment(WITHOUT_THREADS)
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 1 and reason in ended.stderr and "cannot fork attempts" in ended.stderr


@pytest.mark.parametrize("cause", ["served", "grown"])
def test_a_worn_process_is_replaced(
    resident: ResidentProcess, start: Start, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    start().stop()
    before = resident.pid
    if cause == "served":
        monkeypatch.setattr(resident, "_serves", 2)
    else:
        monkeypatch.setattr(client, "_MOST_GROWTH", 0.5)
    process = start()
    assert isinstance(process.guard, ForkedGuard) and process.exit_status() is None
    assert resident.pid != before


def test_one_that_never_gets_ready_is_given_up(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('not for this machine')")
    broken = ResidentProcess(10, inherited_environment({"PYTHONPATH": str(tmp_path)}))
    for _ in range(3):
        process = start(broken)
        assert isinstance(process.guard, subprocess.Popen)
        process.stop()
    assert broken.pid is None
    with monkeypatch.context() as patch:
        patch.setattr(broken, "_ensure_started", None)  # it tries no more
        assert isinstance(start(broken).guard, subprocess.Popen)


def test_all_threads_that_ask_for_the_status_hear_the_same() -> None:
    for _ in range(50):
        ours, theirs = socket.socketpair()
        guard = ForkedGuard(ours, pid=1)
        with ThreadPoolExecutor() as threads, theirs:
            heard = [threads.submit(guard.wait, 10.0) for _ in range(4)]
            theirs.sendall(b"0\n")
            theirs.shutdown(socket.SHUT_WR)
            assert [each.result() for each in heard] == [0, 0, 0, 0]
        ours.close()


def test_a_thread_that_waits_for_the_end_holds_up_no_other() -> None:
    ours, theirs = socket.socketpair()
    guard = ForkedGuard(ours, pid=1)
    with ThreadPoolExecutor() as threads, theirs:
        waiting = threads.submit(guard.wait)
        time.sleep(0.2)
        begun = time.monotonic()
        assert guard.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            guard.wait(0.1)
        assert time.monotonic() - begun < 5.0
        theirs.sendall(b"3\n")
        assert waiting.result(10.0) == guard.wait() == guard.poll() == 3
    ours.close()


WORKER = """
import os, sys, time
from worker.launch import make_resident
from worker.settings import AttemptEnvironmentSettings
resident = make_resident(10, AttemptEnvironmentSettings())
resident.start()
print(resident.pid, flush=True)
time.sleep(60)
"""


def test_it_ends_with_its_worker() -> None:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True, env=inherited_environment({})
    )
    assert worker.stdout is not None
    resident = psutil.Process(int(worker.stdout.readline()))
    worker.kill()
    worker.wait()
    worker.stdout.close()
    psutil.wait_procs([resident], timeout=60)
    assert not resident.is_running() or resident.status() == psutil.STATUS_ZOMBIE

"""A server forks processes that run packages; each is ended, and its end told, without the others."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporter.distributed.fork_server import ForkServer
from exporter.errors import PackageCrashed
from exporter.verify.runner import PackageRunner
from exporter.verify.runner_process import RunnerProcess, make_server


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().split()[3])


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with make_server() as server:
        yield server


def test_processes_are_forks_of_the_server_with_a_folder_of_their_own(
    server: ForkServer, tmp_path: Path
) -> None:
    with RunnerProcess(tmp_path, server=server) as first, RunnerProcess(tmp_path, server=server) as second:
        parents = [parent_of(each.process.pid) for each in (first, second)]
        command = Path(f"/proc/{parents[0]}/cmdline").read_bytes()
        assert parents[0] == parents[1] and b"exporter.verify.runner_server" in command
        assert first.process.pid != second.process.pid
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []
    for each in (first, second):
        assert each.process.wait() == -signal.SIGKILL
        with pytest.raises(ProcessLookupError):
            os.kill(each.process.pid, 0)


def test_a_crash_of_one_is_told_and_the_other_goes_on(server: ForkServer, tmp_path: Path) -> None:
    with RunnerProcess(tmp_path, server=server) as sound, RunnerProcess(tmp_path, server=server) as ahead:
        with PackageRunner([], op_libraries=(), scratch=tmp_path, ahead=ahead) as crashing:
            os.kill(crashing.pid, signal.SIGSEGV)
            with pytest.raises(PackageCrashed, match="ended with status -11"):
                crashing.run({})
        with PackageRunner([], op_libraries=(), scratch=tmp_path, ahead=sound) as runner:
            assert runner.taken == ()


def test_last_words_of_a_process_that_raises_are_told(server: ForkServer, tmp_path: Path) -> None:
    with RunnerProcess(tmp_path, server=server) as ahead:
        runner = PackageRunner([], op_libraries=("no_such_library",), scratch=tmp_path, ahead=ahead)
        with pytest.raises(PackageCrashed, match="status 1: .*No module named 'no_such_library'"):
            runner.__enter__()


def test_processes_end_with_their_user(server: ForkServer, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    user = os.fork()
    if user == 0:
        with RunnerProcess(tmp_path, server=server) as ahead:
            os.write(writer, str(ahead.process.pid).encode())
            signal.pause()
    pid = int(os.read(reader, 20))
    assert Path(f"/proc/{pid}").exists()
    os.kill(user, signal.SIGKILL)
    os.waitpid(user, 0)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{pid}").exists()
    for each in (reader, writer):
        os.close(each)


def test_a_server_that_is_gone_is_a_crash_of_what_it_served(tmp_path: Path) -> None:
    with (
        make_server() as server,
        RunnerProcess(tmp_path, server=server) as ahead,
        PackageRunner([], op_libraries=(), scratch=tmp_path, ahead=ahead) as runner,
    ):
        os.kill(parent_of(runner.pid), signal.SIGKILL)
        with pytest.raises(PackageCrashed, match="ended with status -9"):
            runner.run({})
        assert not server.is_alive
        with RunnerProcess(tmp_path, server=server) as alone:
            assert parent_of(alone.process.pid) == os.getpid()

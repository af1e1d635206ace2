"""Starting and ending the programs together."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from launcher.errors import LaunchFailed
from launcher.ports import claim_port
from launcher.redis_server import running_redis
from launcher.up import Stack, running_stack
from processes.settings import inherited_environment
from tests.signals import HEARS_HANGUP


def test_a_taken_port_is_refused_with_its_number(stack: Stack) -> None:
    port = int(stack.url.rpartition(":")[2])
    with pytest.raises(LaunchFailed, match=f"port {port}"):
        claim_port("127.0.0.1", port)


def test_two_slipways_do_not_share_a_folder(stack: Stack) -> None:
    with pytest.raises(LaunchFailed, match="another Slipway"), running_stack(stack.data_dir):
        pass


def test_redis_asks_for_its_password(stack: Stack) -> None:
    stranger = redis.Redis.from_url("redis://" + stack.redis_url.rpartition("@")[2])
    with pytest.raises(redis.AuthenticationError):
        stranger.ping()
    stranger.close()


def test_redis_keeps_its_data(tmp_path: Path) -> None:
    for expected in (1, 2):
        with running_redis(tmp_path) as server:
            client = redis.Redis.from_url(server.url)
            assert client.incr("starts") == expected
            client.close()


def test_the_data_is_for_the_owner_alone(stack: Stack) -> None:
    assert (stack.data_dir / "redis").stat().st_mode & 0o077 == 0
    assert (stack.data_dir / "redis" / "redis.conf").stat().st_mode & 0o077 == 0


def _ended(program: list[str], settings: dict[str, str]) -> tuple[int, str]:
    """Return the exit status and the last line of a program that cannot start."""
    environment = inherited_environment(settings)
    ended = subprocess.run(
        [sys.executable, "-m", *program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize(
    ("options", "settings", "says"),
    [
        (["--port", "65536"], {}, "error [invalid_settings]: SLIPWAY_PORT: "),
        (["--data", "/dev/null/x"], {}, "error [launch_failed]: data cannot be kept in /dev/null/x: "),
        ([], {"SLIPWAY_PORT": "abc"}, "error [invalid_settings]: SLIPWAY_PORT: "),
        ([], {"SLIPWAY_REDIS_URL": "foo"}, "error [invalid_settings]: SLIPWAY_REDIS_URL: "),
    ],
)
def test_what_it_cannot_start_with_is_one_line(
    options: list[str], settings: dict[str, str], says: str
) -> None:
    code, said = _ended(["launcher", *options], settings)
    assert (code, said.count("\n")) == (1, 1) and said.startswith(says)


@pytest.mark.parametrize("program", [["service"], ["celery", "-A", "worker.app", "worker"]])
def test_the_programs_alone_say_so_too(program: list[str]) -> None:
    code, said = _ended(program, {"SLIPWAY_REDIS_URL": "foo"})
    assert (code, said.count("\n")) == (1, 1) and "[invalid_settings]: SLIPWAY_REDIS_URL: " in said


@contextmanager
def launched(data: Path, settings: dict[str, str]) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """Run `python -m launcher`, and yield it with its URL."""
    command = [*HEARS_HANGUP, sys.executable, "-m", "launcher", "--port", "0", "--data", str(data)]
    environment = inherited_environment(settings)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as program:
        assert program.stdout is not None
        first = program.stdout.readline()
        assert first.startswith("API     http://127.0.0.1:")
        yield program, first.split()[1].removesuffix("/exports")
        program.kill()


@pytest.fixture
def program(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """`python -m launcher`, once it has printed its URLs."""
    with launched(tmp_path, {}) as (program, _):
        yield program


def family(pid: int) -> list[Path]:
    """The process and all its descendants."""
    found = [Path(f"/proc/{pid}")]
    for process in found:
        for thread in process.glob("task/*/children"):
            found += [Path(f"/proc/{child}") for child in thread.read_text().split()]
    return found


def still_alive(family: list[Path]) -> list[Path]:
    return [
        process for process in family if process.exists() and "\tZ" not in (process / "status").read_text()
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_ends_all_programs(program: "subprocess.Popen[str]", number: signal.Signals) -> None:
    processes = family(program.pid)
    assert len(processes) >= 7  # itself, three guards and what they guard
    program.send_signal(number)
    assert program.wait(timeout=30) == 0
    assert still_alive(processes) == []


def test_slipway_up_takes_no_modules_of_the_folder_for_its_own(tmp_path: Path) -> None:
    for name in ("cli", "exporter", "jobs", "launcher", "processes", "service", "telemetry", "worker"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a module of the user')")
    start = "import sys; from slipway.command import main; sys.exit(main())"
    command = [*HEARS_HANGUP, "-u", "PYTHONPATH", sys.executable, "-P", "-c", start, "up", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as program:
        assert program.stdout is not None
        said = [program.stdout.readline() for _ in range(7)]
        assert said[4:] == [
            f"data    {tmp_path}/.slipway\n",
            f"logs    {tmp_path}/.slipway/logs\n",
            "stop with ctrl-C\n",
        ]
        processes = family(program.pid)
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=30) == 0
        assert still_alive(processes) == []


def test_a_killed_launcher_takes_all_programs_with_it(program: "subprocess.Popen[str]") -> None:
    processes = family(program.pid)
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    deadline = time.monotonic() + 20
    while still_alive(processes):
        assert time.monotonic() < deadline
        time.sleep(0.1)

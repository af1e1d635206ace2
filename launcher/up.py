"""Run all of Slipway on one machine: Redis, the API and one worker, as children of this process."""

import contextlib
import fcntl
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TextIO

from jobs.fleet.redis_roster import RedisRoster
from jobs.stores.redis_store import connect
from launcher.errors import LaunchFailed
from launcher.ports import claim_port
from launcher.program import Program
from launcher.redis_server import running_redis

_GRACE = timedelta(seconds=10)  # the worker ends its attempt within five
_START_S = 90.0


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The running programs and their addresses."""

    url: str  # URL of the API
    redis_url: str
    data_dir: Path
    programs: Mapping[str, Program]

    def restart_ended(self) -> Iterator[str]:
        """Start programs again that have ended by themselves; yield what to tell of each end.

        Raises:
            LaunchFailed: one of them ended too often.
        """
        for program in self.programs.values():
            if told := program.restart_if_ended(time.monotonic()):
                yield told


@contextlib.contextmanager
def running_stack(
    data_dir: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    redis_url: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Stack]:
    """Start the programs, wait until a worker is ready, and end all of them with the block.

    Data and logs are kept below `data_dir`. The programs end as well when this process is killed. The
    variables of `environment` replace those of this process.
    """
    data_dir = data_dir.absolute()
    with contextlib.ExitStack() as exits:
        exits.enter_context(_lock_data_dir(data_dir))
        port = claim_port(host, port)
        programs: dict[str, Program] = {}
        if redis_url is None:
            server = exits.enter_context(running_redis(data_dir / "redis"))
            redis_url, programs["Redis"] = server.url, server.program
        settings = {
            **(environment or {}),
            "SLIPWAY_HOST": host,
            "SLIPWAY_REDIS_URL": redis_url,
            "SLIPWAY_WORK_DIR": str(data_dir / "work"),
        }
        stack = Stack(
            url=f"http://{host}:{port}",
            redis_url=redis_url,
            data_dir=data_dir,
            programs=programs
            | {
                name: exits.enter_context(_run_program(name, command, data_dir, settings))
                for name, command in _commands(host, port).items()
            },
        )
        _wait_until_ready(stack)
        yield stack


def _commands(host: str, port: int) -> dict[str, list[str]]:
    api = ["service", "--host", host, "--port", str(port)]
    api += ["--grace", "3"]  # streams of events end only when jobs do
    # -P, and not Celery's own command: neither looks for modules in this folder, where a user's may be.
    return {"API": [sys.executable, "-P", "-m", *api], "worker": [sys.executable, "-P", "-m", "worker"]}


@contextlib.contextmanager
def _run_program(
    name: str, command: list[str], data_dir: Path, settings: Mapping[str, str]
) -> Iterator[Program]:
    logs = data_dir / "logs"
    logs.mkdir(exist_ok=True)
    log = logs / f"{name.lower()}.log"
    program = Program(name, command, log=log, grace=_GRACE, environment=settings)
    try:
        yield program
    finally:
        program.stop()


@contextlib.contextmanager
def _lock_data_dir(data_dir: Path) -> Iterator[None]:
    """Create the folder and hold its lock, which the kernel releases however this process ends."""
    with _open_lock(data_dir) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LaunchFailed(
                f"another Slipway runs with its data in {data_dir}",
                hint="stop it, or choose another folder and port: --data FOLDER --port 0",
            ) from None
        yield


def _open_lock(data_dir: Path) -> TextIO:
    try:
        data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        return (data_dir / "lock").open("a")
    except OSError as error:
        raise LaunchFailed(
            f"data cannot be kept in {data_dir}: {error.strerror}", hint="choose another folder with --data"
        ) from error


def _wait_until_ready(stack: Stack) -> None:
    deadline = time.monotonic() + _START_S
    with contextlib.closing(connect(stack.redis_url)) as client:
        while time.monotonic() < deadline:
            for program in stack.programs.values():
                program.check()
            # The workers are counted in Redis: the API says to callers with a key only who they are.
            if _is_ready(stack.url) and RedisRoster(client).alive():
                return
            time.sleep(0.1)
    raise LaunchFailed(f"no worker was ready within {_START_S:.0f} s", where=str(stack.data_dir / "logs"))


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5):  # noqa: S310 (our own http URL)
            return True
    except OSError:  # HTTPError is one
        return False

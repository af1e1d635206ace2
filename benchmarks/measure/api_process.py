"""The API with a Redis of its own that already holds jobs; there is no worker."""

import itertools
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measure.service_process import running_service
from benchmarks.measure.store_jobs import end_job
from exporter.spec import ExportSpec, TowerName
from jobs.ids import JobId, new_job_id
from jobs.model import Job, TowerProgress
from jobs.spec import JobSpec
from jobs.stores.redis_store import RedisJobStore, connect
from launcher.redis_server import running_redis

_ASKED = 50  # number of ended jobs that polls ask about; all are alike
_FEW = 10_000  # jobs that one process stores fast enough


@dataclass(frozen=True, kw_only=True)
class Api:
    """A running API: its port, the guards of its processes, and the jobs that it began with."""

    port: int
    process: int
    redis_process: int
    stored: int
    redis_bytes: int  # that the jobs take in Redis
    some: tuple[JobId, ...]  # ids of ended ones


@contextmanager
def running_api(folder: Path, spec: ExportSpec, *, stored: int) -> Iterator[Api]:
    """Run Redis, put `stored` jobs of `spec` into it, run the API, and end both with the block."""
    with running_redis(folder / "redis") as server:
        some, taken = store_jobs(server.url, spec, stored)
        with running_service(folder, server.url) as service:
            yield Api(
                port=service.port,
                process=service.process.guard.pid,
                redis_process=server.program.process.guard.pid,
                stored=stored,
                redis_bytes=taken,
                some=some,
            )


def store_jobs(url: str, spec: ExportSpec, count: int) -> tuple[tuple[JobId, ...], int]:
    """Store jobs as a service that has run for long has them: nearly all have ended.

    Two processes store many of them, because one takes longer than Redis does. Return some that have ended,
    and the bytes that all of them take.
    """
    client = connect(url)
    client.config_set("appendonly", "no")  # nobody restarts this Redis, and the file would have gigabytes
    client.config_set("save", "")
    like = _queued_job(spec)
    before = int(client.info("memory")["used_memory"])
    store = RedisJobStore(client)
    store.add(like, spec.config)  # brings the config that all share
    store.replace(like, end_job(like))
    parts = 2 if count > _FEW else 1
    bounds = [1 + (count - 1) * part // parts for part in range(parts + 1)]
    storing = [_start_storing(url, low + 1, high, like) for low, high in itertools.pairwise(bounds)]
    ended = [like.id]
    ended += [JobId(line) for process in storing for line in process.communicate()[0].split()]
    if any(process.returncode for process in storing):
        raise SystemExit("the jobs could not be stored")
    taken = int(client.info("memory")["used_memory"]) - before
    client.close()
    return tuple(random.Random(0).sample(ended, min(_ASKED, len(ended)))), taken  # noqa: S311  (no secret)


def _start_storing(url: str, first: int, last: int, like: Job) -> subprocess.Popen[str]:
    """Start a process that stores the jobs with these numbers."""
    command = [sys.executable, "-m", "benchmarks.measure.store_jobs", url, str(first), str(last)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    process.stdin.write(like.model_dump_json())
    process.stdin.close()
    process.stdin = None  # for `communicate`
    return process


def _queued_job(spec: ExportSpec) -> Job:
    now = datetime.now(UTC)
    towers = tuple(TowerProgress(name=name) for name in (TowerName.USER, TowerName.ITEM))
    return Job(id=new_job_id(), spec=JobSpec.of(spec), towers=towers, created_at=now, updated_at=now)

"""The API with a Redis of its own that already holds jobs; there is no worker."""

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from benchmarks.measure.service_process import running_service
from exporter.spec import ExportSpec, TowerName
from exporter.stages import Stage
from jobs.ids import JobId, new_job_id
from jobs.model import Job, JobState, TowerProgress, TowerState, VerificationSummary
from jobs.spec import JobSpec
from jobs.stores.redis_keys import OUTBOX_KEY
from jobs.stores.redis_store import RedisJobStore, connect
from launcher.redis_server import running_redis

_ASKED = 50  # number of ended jobs that polls ask about; all are alike
_FEW = 10_000  # jobs that one process stores fast enough
_QUEUED_EACH = 100  # one of this many stored jobs is still queued
_TOGETHER = 500  # jobs that are sent to Redis at once
_MODELS = 10_000


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

    The job store itself adds and ends them; its scripts are sent to Redis many at a time, by two processes if
    there are many jobs. Return some that have ended, and the bytes that all of them take.
    """
    client = connect(url)
    client.config_set("appendonly", "no")  # nobody restarts this Redis, and the file would have gigabytes
    client.config_set("save", "")
    like, store = _queued_job(spec), RedisJobStore(client)
    before = int(client.info("memory")["used_memory"])
    store.add(like, spec.config)  # brings the config that all share
    store.replace(like, _end_job(like))
    if count > _FEW:
        with ProcessPoolExecutor(2, get_context("spawn")) as processes:
            bounds = ((2, count // 2), (count // 2 + 1, count))
            parts = [processes.submit(_store_part, url, like, *each) for each in bounds]
            ended = [job_id for part in parts for job_id in part.result()]
    else:
        ended = [like.id, *_store_part(url, like, 2, count)]
    taken = int(client.info("memory")["used_memory"]) - before
    client.close()
    return tuple(random.Random(0).sample(ended, min(_ASKED, len(ended)))), taken  # noqa: S311  (no secret)


def _queued_job(spec: ExportSpec) -> Job:
    now = datetime.now(UTC)
    towers = tuple(TowerProgress(name=name) for name in (TowerName.USER, TowerName.ITEM))
    return Job(id=new_job_id(), spec=JobSpec.of(spec), towers=towers, created_at=now, updated_at=now)


def _store_part(url: str, like: Job, first: int, last: int) -> list[JobId]:
    """Store the jobs with these numbers, whose config is in Redis already; return those that have ended."""
    client, ended = connect(url), []
    with client.pipeline(transaction=False) as pipe:
        together = RedisJobStore(pipe)
        for number in range(first, last + 1):
            job = like.model_copy(update={"id": new_job_id(), **_choices_of(number)})
            together.add(job, None)
            if number % _QUEUED_EACH:
                together.replace(job, _end_job(job))
                ended.append(job.id)
            if number % _TOGETHER == 0 or number == last:
                pipe.delete(OUTBOX_KEY)  # their callbacks count as delivered
                pipe.execute()
    client.close()
    return ended


def _choices_of(number: int) -> dict[str, str]:
    """Return what distinguishes a job from others: its model, and the digest of its inputs."""
    return {"model": f"model-{number % _MODELS}", "content_key": f"{number:064x}"}


def _end_job(job: Job) -> Job:
    where = f"{job.spec.output_uri}/{job.id}"
    towers = tuple(
        TowerProgress(
            name=tower.name,
            state=TowerState.SUCCEEDED,
            stage=Stage.PUBLISH,
            stage_seconds=dict.fromkeys(
                (each for each in Stage if each not in (Stage.TABLES, Stage.ITEMS)), 1.234
            ),
            package_uri=f"{where}/{tower.name}/aoti/aoti_model.pt2",
            package_size=3_000_000,
            digest="0" * 64,
            code="warm",
            reused="request",
            verification=VerificationSummary(cases=30, passed=30, largest_difference=1e-6, tolerance=1e-4),
        )
        for tower in job.towers
    )
    ended = {"state": JobState.SUCCEEDED, "towers": towers, "revision": 20, "attempt": 1}
    times = {"started_at": job.created_at, "finished_at": job.created_at}
    return job.model_copy(update={**ended, **times, "manifest_uri": f"{where}/manifest.json"})

"""The API with a Redis of its own that already holds jobs; there is no worker."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measure.service_process import running_service
from exporter.spec import ExportSpec, TowerName
from exporter.stages import Stage
from jobs.ids import JobId, new_job_id
from jobs.model import Job, JobState, TowerProgress, TowerState, VerificationSummary
from jobs.spec import JobSpec
from jobs.stores.redis_store import OUTBOX_KEY, RedisJobStore, connect
from launcher.redis_server import running_redis

_QUEUED_EACH = 100  # one of this many stored jobs is still queued
_ASKED = 50  # number of ended jobs that polls ask about; all are alike


@dataclass(frozen=True, kw_only=True)
class Api:
    """A running API: its port, the number of jobs it began with, and the ids of some ended ones."""

    port: int
    stored: int
    some: tuple[JobId, ...]


@contextmanager
def running_api(folder: Path, spec: ExportSpec, *, stored: int) -> Iterator[Api]:
    """Run Redis, put `stored` jobs of `spec` into it, run the API, and end both with the block."""
    with running_redis(folder / "redis") as server:
        some = _store_jobs(server.url, spec, stored)
        with running_service(folder, server.url) as service:
            yield Api(port=service.port, stored=stored, some=some)


def _store_jobs(url: str, spec: ExportSpec, count: int) -> tuple[JobId, ...]:
    """Store jobs as a service that has run for long has them: nearly all have ended."""
    client = connect(url)
    store = RedisJobStore(client)
    ended = []
    for number in range(1, count + 1):
        job = _queued_job(spec) if number % _QUEUED_EACH == 0 else _ended_job(spec)
        store.add(job, spec.config or "")
        if job.state.is_final:
            ended.append(job.id)
    client.delete(OUTBOX_KEY)  # their callbacks count as delivered
    client.close()
    return tuple(random.Random(0).sample(ended, min(_ASKED, len(ended))))  # noqa: S311  (no secret)


def _queued_job(spec: ExportSpec) -> Job:
    now = datetime.now(UTC)
    towers = tuple(TowerProgress(name=name) for name in (TowerName.USER, TowerName.ITEM))
    return Job(id=new_job_id(), spec=JobSpec.of(spec), towers=towers, created_at=now, updated_at=now)


def _ended_job(spec: ExportSpec) -> Job:
    job = _queued_job(spec)
    where = f"{spec.output_uri}/{job.id}"
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

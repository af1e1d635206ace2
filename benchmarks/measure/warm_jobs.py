"""Jobs of new weights through the real API, Redis and an idle worker: from the POST to what comes of it."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pydantic import BaseModel

from benchmarks.measure.models import Model
from jobs.model import JobState
from launcher.up import running_stack
from slipway.client import Client, JobView

_LOOK_S = 0.02  # until a tower is in a stage
_REST_S = 0.2  # then, because polls take processor time from the attempt
_IDLE_S = 3.0  # before a job: the worker's resident process has imported, and nothing is left to do
_END_S = 900.0


class WarmJob(BaseModel):
    """Seconds from a job's POST, beside those of importing torch right before it."""

    running_s: float  # until a worker had it
    stage_s: float  # until a tower was in a stage
    published_s: float  # until the record said that all of it is published
    importing_s: float  # torch, in a new Python process


def measure_jobs(model: Model, folder: Path, count: int) -> Iterator[WarmJob]:
    """Yield the times of `count` jobs, each with new weights; one before them compiles their code."""
    environment = {
        "SLIPWAY_CODE_CACHE": str(folder / "code-of-jobs"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiler"),
    }
    with running_stack(folder / "stack", environment=environment) as stack:
        client = Client(stack.url)
        _require_published(_poll(client, client.submit(model.spec(folder, seed=1000)), _until_ended), "cold")
        for number in range(count):
            spec = model.spec(folder, seed=1001 + number)
            time.sleep(_IDLE_S)
            begun = time.monotonic()
            subprocess.run([sys.executable, "-c", "import torch"], check=True)
            importing, begun, posted_at = time.monotonic() - begun, time.monotonic(), time.time()
            job = client.submit(spec)
            job = _poll(client, job, lambda job: bool(job.attempt) or job.state.is_final)
            running = time.monotonic() - begun
            job = _poll(client, job, lambda job: any(each.stage for each in job.towers) or job.state.is_final)
            stage = time.monotonic() - begun
            job = _poll(client, job, _until_ended, _REST_S)
            _require_published(job, "warm")
            assert job.finished_at is not None
            yield WarmJob(
                running_s=running,
                stage_s=stage,
                published_s=job.finished_at.timestamp() - posted_at,
                importing_s=importing,
            )


def _until_ended(job: JobView) -> bool:
    return job.state.is_final


def _poll(
    client: Client, job: JobView, until: Callable[[JobView], bool], every_s: float = _LOOK_S
) -> JobView:
    deadline = time.monotonic() + _END_S
    while not until(job):
        if time.monotonic() > deadline:
            raise SystemExit(f"job {job.id} is still {job.state} after {_END_S:g} s")
        time.sleep(every_s)
        job = client.get_if_changed(job)
    return job


def _require_published(job: JobView, code: str) -> None:
    """End the benchmark if a job failed, or its code was not what is measured."""
    if job.state is not JobState.SUCCEEDED:
        raise SystemExit(f"job {job.id} ended {job.state}: {job.failure}")
    found = [tower.code for tower in job.towers]
    if any(each != code for each in found):
        raise SystemExit(f"the towers' code was {found}, not {code}")

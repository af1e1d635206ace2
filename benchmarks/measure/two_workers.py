"""A Slipway of two workers on this machine, with an S3 server whose requests are counted."""

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import boto3
from botocore.exceptions import EndpointConnectionError

from exporter.spec import ExportSpec
from jobs.ids import JobId
from jobs.model import JobState
from jobs.stores.redis_store import connect
from launcher.ports import free_port
from launcher.up import running_stack
from processes.guarded_process import GuardedProcess
from slipway.client import Client, JobView

WORKERS = 2
_BUCKET = "releases"
_GRACE = timedelta(seconds=10)
_START_S = 90.0
_JOB_S = 600.0
_LOOK_S = 0.1
_LOGGED = re.compile(r'"(GET|HEAD|PUT|POST|DELETE) /')


@dataclass(frozen=True, kw_only=True)
class DoneJob:
    """A job that succeeded; times are seconds after the first of its batch was sent."""

    id: JobId
    arrived: float
    started: float
    ended: float
    is_cold: bool
    size: int  # bytes of its packages


@dataclass(frozen=True, kw_only=True)
class TwoWorkers:
    """Two workers, and what they are asked for."""

    client: Client
    redis_url: str
    s3_log: Path

    def run(self, specs: Sequence[ExportSpec], pauses: Sequence[float]) -> list[DoneJob]:
        """Send the jobs, each after its pause, and wait for all.

        Raises:
            SystemExit: one of them failed, or took too long.
        """
        sent = []
        for spec, pause in zip(specs, pauses, strict=True):
            time.sleep(pause)
            sent.append(self.client.submit(spec))
        done = [self._await(job.id) for job in sent]
        first = min(job.created_at for job in done)
        return [_describe(job, first) for job in done]

    def redis_bytes(self, jobs: Sequence[DoneJob]) -> int:
        """Return the memory that Redis uses for the keys that name these jobs: records, logs, events."""
        with closing(connect(self.redis_url)) as client:
            keys = {str(key) for job in jobs for key in client.scan_iter(match=f"*{job.id}*", count=1_000)}
            return sum(client.memory_usage(key, samples=0) or 0 for key in keys)

    def count_requests(self) -> Counter[str]:
        """Return how many requests of each method the S3 server has answered."""
        return Counter(_LOGGED.findall(self.s3_log.read_text()))

    def _await(self, job_id: str) -> JobView:
        deadline = time.monotonic() + _JOB_S
        while time.monotonic() < deadline:
            job = self.client.get(job_id)
            if job.state.is_final:
                if job.state is not JobState.SUCCEEDED:
                    raise SystemExit(f"job {job_id} {job.state}: {job.failure}")
                return job
            time.sleep(_LOOK_S)
        raise SystemExit(f"job {job_id} did not end within {_JOB_S:.0f} s")


@contextmanager
def running_two_workers(folder: Path) -> Iterator[TwoWorkers]:
    """Run Redis, the API, two workers and an S3 server until the block ends."""
    folder.mkdir()
    with ExitStack() as running:
        log = folder / "s3.log"
        s3 = running.enter_context(_running_s3(log))
        environment = {**s3, "SLIPWAY_CODE_CACHE": str(folder / "code")}
        stack = running.enter_context(running_stack(folder / "stack", environment=environment))
        second = GuardedProcess.start(
            [sys.executable, "-m", "celery", "-A", "worker.app", "worker", "-n", "second@%h"],
            log=folder / "second.log",
            grace=_GRACE,
            environment={
                **environment,
                "SLIPWAY_REDIS_URL": stack.redis_url,
                "SLIPWAY_WORK_DIR": str(folder / "second"),
            },
        )
        running.callback(second.stop)
        client = Client(stack.url)
        deadline = time.monotonic() + _START_S
        while client.ready().workers != WORKERS:
            if time.monotonic() > deadline or second.exit_status() is not None:
                raise SystemExit(f"the second worker did not start; its log ends:\n{second.last_lines(10)}")
            time.sleep(_LOOK_S)
        yield TwoWorkers(client=client, redis_url=stack.redis_url, s3_log=log)


def on_s3(spec: ExportSpec) -> ExportSpec:
    """Return the export with its artifact on the S3 server."""
    return spec.model_copy(update={"output_uri": f"s3://{_BUCKET}/artifacts"})


@contextmanager
def _running_s3(log: Path) -> Iterator[dict[str, str]]:
    """Run an S3 server with one bucket; yield the environment by which it is reached."""
    port = free_port()
    command = ["env", "MOTO_SERVICE=s3", sys.executable, "-m", "moto.server", "-H", "127.0.0.1"]
    server = GuardedProcess.start([*command, "-p", str(port)], log=log, grace=_GRACE)
    url = f"http://127.0.0.1:{port}"
    environment = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        client = boto3.client(
            "s3",
            endpoint_url=url,
            region_name=environment["AWS_DEFAULT_REGION"],
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        )
        deadline = time.monotonic() + _START_S
        while True:
            try:
                client.create_bucket(Bucket=_BUCKET)
                break
            except EndpointConnectionError:
                if time.monotonic() > deadline or server.exit_status() is not None:
                    raise SystemExit(
                        f"the S3 server did not start; its log ends:\n{server.last_lines(10)}"
                    ) from None
                time.sleep(_LOOK_S)
        yield environment
    finally:
        server.stop()


def _describe(job: JobView, first: datetime) -> DoneJob:
    assert job.started_at and job.finished_at
    return DoneJob(
        id=JobId(job.id),
        arrived=(job.created_at - first).total_seconds(),
        started=(job.started_at - first).total_seconds(),
        ended=(job.finished_at - first).total_seconds(),
        is_cold=any(tower.code == "cold" for tower in job.towers),
        size=sum(tower.package_size or 0 for tower in job.towers),
    )

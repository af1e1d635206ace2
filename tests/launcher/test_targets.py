"""Jobs are routed by target to real workers: each takes the targets it serves, and nothing else."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from exporter.aoti.cpu_levels import cpu_levels
from exporter.spec import ExportSpec
from exporter.torch_releases import installed_release
from jobs.model import JobState
from launcher.up import Stack, running_stack
from processes.guarded_process import GuardedProcess
from slipway.client import Client, RequestRefused
from tests.launcher.conftest import fake_ranks
from tests.launcher.test_end_to_end import SPEC, wait_for

pytestmark = pytest.mark.skipif(cpu_levels() != ("avx2", "avx512"), reason="needs a CPU with AVX-512")


def spec_for(*targets: str, torch: str | None = None) -> ExportSpec:
    return ExportSpec.model_validate({**SPEC.model_dump(), "target": targets, "torch": torch})


@contextmanager
def worker_for(stack: Stack, targets: str, name: str, **settings: str) -> Iterator[None]:
    """One more worker, which serves only these targets."""
    process = GuardedProcess.start(
        [sys.executable, "-m", "celery", "-A", "worker.app", "worker", "-n", f"{name}@%h"],
        log=stack.data_dir / f"{name}.log",
        grace=timedelta(seconds=10),
        environment={
            **fake_ranks("succeed", stack.data_dir),
            "SLIPWAY_REDIS_URL": stack.redis_url,
            "SLIPWAY_WORK_DIR": str(stack.data_dir / "work"),
            "SLIPWAY_TARGETS": targets,
            **settings,
        },
    )
    try:
        yield
    finally:
        process.stop()


@pytest.fixture(scope="module")
def avx2_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A Slipway whose first worker serves avx2 and nothing else."""
    folder = tmp_path_factory.mktemp("targets")
    environment = {**fake_ranks("succeed", folder), "SLIPWAY_TARGETS": "avx2"}
    with running_stack(folder, environment=environment) as stack:
        yield stack


def test_a_job_for_a_target_nobody_serves_says_so_at_once_and_runs_when_somebody_does(
    avx2_stack: Stack,
) -> None:
    client = Client(avx2_stack.url)
    job = client.submit(spec_for("avx2", "avx512"))
    assert job.unserved == ("avx512",)
    while not (job := client.get(job.id)).manifest_uris:
        time.sleep(0.1)
    assert (job.state, set(job.manifest_uris), job.unserved) == (JobState.QUEUED, {"avx2"}, ("avx512",))
    with worker_for(avx2_stack, "avx512", "wide"):
        ended = wait_for(client, job, JobState.SUCCEEDED, JobState.FAILED)
    assert set(ended.manifest_uris) == {"avx2", "avx512"} and ended.unserved == ()


def test_a_release_of_torch_goes_to_workers_that_have_it_and_no_other_is_accepted(avx2_stack: Stack) -> None:
    client, release = Client(avx2_stack.url), installed_release()
    wait_for(client, client.submit(spec_for("avx2", torch=release)), JobState.SUCCEEDED)
    with pytest.raises(
        RequestRefused, match=f"no worker has torch 9.9; those alive have {release}"
    ) as refused:
        client.submit(spec_for("avx2", torch="9.9"))
    assert refused.value.code == "torch_unserved"


def test_a_worker_that_keeps_to_its_release_leaves_other_jobs_alone(avx2_stack: Stack) -> None:
    client, release = Client(avx2_stack.url), installed_release()
    with worker_for(avx2_stack, "avx512", "kept", SLIPWAY_TORCH=str(release)):
        while not any("avx512" in worker.targets for worker in client.ready().alive or ()):
            time.sleep(0.1)
        assert client.submit(spec_for("avx512")).unserved == ("avx512",)
        named = client.submit(spec_for("avx512", torch=release))
        assert named.unserved == ()
        wait_for(client, named, JobState.SUCCEEDED)


def test_what_a_worker_serves_is_told(avx2_stack: Stack) -> None:
    (worker,) = Client(avx2_stack.url).ready().alive or ()
    assert worker.targets == ("avx2",)
    assert worker.architecture.startswith("x86_64 avx2") and worker.memory and worker.versions["slipway"]

"""Attempts that have published, and break off while they judge their release."""

import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from exporter.artifact.signing import SIGNATURE_NAME, SigningKey
from exporter.options.release_gate import ReleaseGate
from jobs.diagnostics.logs import MemoryLogs
from jobs.lease.leases import Holding, claim, update_job
from jobs.model import Job, JobState
from jobs.spec import JobSpec
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_job, make_spec
from tests.worker.conftest import ATTEMPT_ENVIRONMENT
from worker.launch import CommandLauncher
from worker.supervisor import Supervisor

PRIVATE = Ed25519PrivateKey.generate()
PEM = PRIVATE.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture
def holding(store: MemoryJobStore, tmp_path: Path) -> Holding:
    gate = ReleaseGate(rows_uri="/rows.parquet")
    spec = JobSpec.of(make_spec(output_uri=str(tmp_path), release_gate=gate))
    job = make_job().model_copy(update={"spec": spec})
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w1", length=MINUTE)
    assert holding is not None
    return holding


@pytest.fixture
def make(worker_dir: Path, pids: Path) -> Callable[[float], Supervisor]:
    def make(limit_s: float) -> Supervisor:
        command = (sys.executable, "-m", "tests.worker.fake_ranks", "publish-and-hang", str(pids))
        return Supervisor(
            CommandLauncher(command, ATTEMPT_ENVIRONMENT),
            worker_dir=worker_dir,
            time_limit=timedelta(seconds=limit_s),
            logs=MemoryLogs(),
            signing_key=SigningKey(PEM),
            poll_s=0.05,
        )

    return make


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.05)


def require_published_unjudged(job: Job | None, folder: Path) -> None:
    assert job is not None
    assert (job.state, job.blessed) == (JobState.SUCCEEDED, False)
    assert job.verdicts[0].failure == "not judged: the attempt ended after it had published"
    PRIVATE.public_key().verify(
        (folder / SIGNATURE_NAME).read_bytes(), (folder / "manifest.json").read_bytes()
    )


def test_a_time_limit_while_the_release_is_judged_takes_nothing_back(
    holding: Holding, make: Callable[[float], Supervisor], tmp_path: Path
) -> None:
    require_published_unjudged(make(8).run(holding), tmp_path / holding.job.id)


def test_what_is_published_is_signed_before_it_is_judged_and_a_cancel_keeps_it(
    holding: Holding, store: MemoryJobStore, make: Callable[[float], Supervisor], tmp_path: Path
) -> None:
    ended: list[Job | None] = []
    supervisor, folder = make(60), tmp_path / holding.job.id
    run = threading.Thread(target=lambda: ended.append(supervisor.run(holding)))
    run.start()
    wait_for(folder / SIGNATURE_NAME)  # the attempt goes on
    update_job(store, holding.job.id, lambda job, now: job.request_cancel(now))
    run.join()
    require_published_unjudged(ended[0], folder)


def test_a_worker_that_stops_hands_the_job_back_to_be_judged(
    holding: Holding, make: Callable[[float], Supervisor], tmp_path: Path
) -> None:
    ended: list[Job | None] = []
    supervisor, folder = make(60), tmp_path / holding.job.id
    run = threading.Thread(target=lambda: ended.append(supervisor.run(holding)))
    run.start()
    wait_for(folder / SIGNATURE_NAME)
    supervisor.stop()
    run.join()
    assert ended[0] is not None
    assert (ended[0].state, ended[0].verdicts) == (JobState.QUEUED, ())
    assert (folder / "manifest.json").exists()

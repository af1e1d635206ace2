"""A job that ends after its worker names its artifact only if that can be signed safely."""

from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from exporter.artifact.read import sign_artifact
from exporter.artifact.signing import SIGNATURE_NAME, SigningKey
from exporter.outcome import ExportOutcome
from exporter.storage.local import LocalStore
from jobs.lease.orphans import take_orphan
from jobs.model import Job, JobState
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import MINUTE
from tests.worker.abandoned_jobs import (
    Away,
    abandon_twice,
    digest_at,
    held,
    place,
    publish,
    runner_of,
    stored_job,
)
from tests.worker.test_tasks import sweep
from worker.attempt.attempt_result import Finished
from worker.attempt.finalize import close_orphan, sign_published
from worker.supervisor import Supervisor
from worker.tasks import Runner

MakeSupervisor = Callable[..., Supervisor]


@pytest.fixture
def job(store: MemoryJobStore, tmp_path: Path) -> Job:
    return stored_job(store, output=tmp_path / "out")


@pytest.fixture
def runner(make_supervisor: MakeSupervisor, store: MemoryJobStore) -> Runner:
    return runner_of(store, make_supervisor("succeed"))


@pytest.fixture
def signing_key() -> SigningKey:
    private = Ed25519PrivateKey.generate()
    return SigningKey(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


def test_a_signature_that_cannot_be_read_now_ends_no_job(
    store: MemoryJobStore, job: Job, runner: Runner, signing_key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    abandon_twice(store, job)
    publish(job)
    sign_artifact(str(place(job)), job.id, signing_key, digest_at(place(job)))
    runner.supervisor.signing_key = signing_key
    with monkeypatch.context() as patched:
        patched.setattr("worker.attempt.finalize.open_output_of", lambda job, uri: Away(Path(uri)))
        sweep(runner)
    assert store.get(job.id).state is JobState.RUNNING
    orphan = take_orphan(store, job.id, store.leases()[job.id], worker="w4", length=MINUTE)
    assert orphan is not None
    assert close_orphan(orphan, signing_key).state is JobState.PARTIALLY_SUCCEEDED


def test_a_job_whose_artifact_nobody_can_vouch_for_fails_over_that(
    store: MemoryJobStore, job: Job, runner: Runner, signing_key: SigningKey
) -> None:
    abandon_twice(store, job)
    publish(job)
    runner.supervisor.signing_key = signing_key
    sweep(runner)
    failure = store.get(job.id).failure
    assert failure is not None and failure.code == "signature_refused"


def test_a_signature_that_the_store_refuses_for_a_while_is_tried_again(
    store: MemoryJobStore, job: Job, signing_key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    holding = held(store, job)
    manifest = publish(job)
    outcome = ExportOutcome(manifest_uri=str(manifest), manifest_sha256=digest_at(place(job)))
    stores: list[LocalStore] = [Away(place(job)), LocalStore(place(job))]
    monkeypatch.setattr("worker.attempt.finalize.open_output_of", lambda job, uri: stores.pop(0))
    monkeypatch.setattr("worker.attempt.finalize._RETRY_S", 0.0)
    assert sign_published(Finished(outcome), holding, signing_key) == Finished(outcome)
    assert (place(job) / SIGNATURE_NAME).exists()

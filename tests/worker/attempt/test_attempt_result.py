"""Editing an attempt's result before it is recorded."""

import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from exporter.artifact.signing import SIGNATURE_NAME, SigningKey
from exporter.outcome import ExportOutcome, Failure
from jobs.diagnostics.logs import MemoryLogs
from jobs.lease.leases import claim
from jobs.model import JobState
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, WORSE, make_job, make_report
from tests.worker.conftest import ATTEMPT_ENVIRONMENT
from worker.attempt.attempt_result import Finished, NoOutcome, redact_failures
from worker.launch import CommandLauncher
from worker.supervisor import Supervisor


def test_what_the_worker_knows_as_a_secret_is_in_no_failure() -> None:
    failure = Failure(
        code="x", message="with planted-secret", report="planted-secret", where="planted-secret"
    )
    broken = redact_failures(["planted-secret"], NoOutcome(failure))
    finished = redact_failures(["planted-secret"], Finished(ExportOutcome(failure=failure)))
    finding = WORSE.model_copy(update={"detail": "with planted-secret"})
    judged = ExportOutcome(release=make_report(finding, failure="with planted-secret"))
    blessed = redact_failures(["planted-secret"], Finished(judged))
    assert "planted" not in f"{broken} {finished} {blessed}"


@pytest.mark.parametrize("swapped", [False, True])
def test_the_worker_signs_what_its_attempt_wrote_and_nothing_else(
    worker_dir: Path, store: MemoryJobStore, tmp_path: Path, pids: Path, swapped: bool
) -> None:
    job = make_job().model_copy(
        update={"spec": make_job().spec.model_copy(update={"output_uri": str(tmp_path)})}
    )
    store.add(job, CONFIG_TEXT)
    holding = claim(store, job.id, worker="w1", length=MINUTE)
    assert holding is not None
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    behaviour = "publish-swapped" if swapped else "publish"
    command = (sys.executable, "-m", "tests.worker.fake_ranks", behaviour, str(pids))
    supervisor = Supervisor(
        CommandLauncher(command, ATTEMPT_ENVIRONMENT),
        worker_dir=worker_dir,
        time_limit=MINUTE,
        logs=MemoryLogs(),
        signing_key=SigningKey(pem),
    )
    ended = supervisor.run(holding)
    folder = tmp_path / job.id
    assert ended is not None
    if swapped:
        assert (
            ended.failure is not None and "not the manifest that the attempt wrote" in ended.failure.message
        )
        assert not (folder / SIGNATURE_NAME).exists()
        return
    assert ended.state is JobState.SUCCEEDED
    private.public_key().verify(
        (folder / SIGNATURE_NAME).read_bytes(), (folder / "manifest.json").read_bytes()
    )

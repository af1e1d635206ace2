"""Leftovers of attempts where an artifact was expected, and workers that deal with them."""

import hashlib
from datetime import timedelta
from pathlib import Path

from exporter.artifact.read import file_ref
from exporter.artifact.signing import SIGNATURE_NAME
from exporter.errors import StorageError
from exporter.spec import TowerName
from exporter.storage.local import LocalStore
from exporter.storage.store import READ_LIMIT
from jobs.fleet.tallies import MemoryTallies
from jobs.lease.leases import Holding, claim, update_job
from jobs.model import Job
from jobs.queue import MemoryQueue
from jobs.spec import JobSpec
from jobs.stores.memory_store import MemoryJobStore
from tests.jobs.factories import CONFIG_TEXT, MINUTE, make_entry, make_job, make_manifest, make_spec
from tests.jobs.lease_monitors import fair_lease_monitor
from tests.worker.test_tasks import MACHINE
from worker.supervisor import Supervisor
from worker.tasks import Runner

OVER = timedelta(seconds=-1)


def stored_job(store: MemoryJobStore, *, output: Path) -> Job:
    """A job whose artifact belongs below a folder."""
    job = make_job().model_copy(update={"spec": JobSpec.of(make_spec(output_uri=str(output)))})
    store.add(job, CONFIG_TEXT)
    return job


def runner_of(store: MemoryJobStore, supervisor: Supervisor) -> Runner:
    """A worker other than the one whose attempts left something."""
    return Runner(
        store=store,
        queue=MemoryQueue(),
        lease_monitor=fair_lease_monitor(),
        supervisor=supervisor,
        worker="w3",
        lease=MINUTE,
        tallies=MemoryTallies(),
        machine=MACHINE,
    )


def held(store: MemoryJobStore, job: Job, *, worker: str = "w1", length: timedelta = MINUTE) -> Holding:
    holding = claim(store, job.id, worker=worker, length=length)
    assert holding is not None
    return holding


def place(job: Job) -> Path:
    return Path(job.spec.output_uri, job.id)


class Away(LocalStore):
    """A store that answers nothing about signatures."""

    def read(self, key: str, *, limit: int = READ_LIMIT) -> bytes:
        if key == SIGNATURE_NAME:
            raise StorageError("503")
        return super().read(key, limit=limit)

    def put_bytes(self, data: bytes, key: str, *, within: timedelta | None = None) -> None:
        raise StorageError("503")


def digest_at(folder: Path) -> str:
    return hashlib.sha256((folder / "manifest.json").read_bytes()).hexdigest()


def send(job: Job) -> Path:
    path = place(job) / "user" / "aoti" / "aoti_model.pt2"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"package")
    return path


def publish(job: Job) -> Path:
    """Publish the user tower alone, as an attempt that died before it could report the outcome."""
    sent = send(job)
    entry = make_entry(TowerName.USER)
    entry = entry.model_copy(update={"package": file_ref(entry.package.path, sent)})
    manifest = place(job) / "manifest.json"
    manifest.write_text(make_manifest(job.id, entry).model_dump_json())
    return manifest


def cancel(store: MemoryJobStore, job: Job) -> None:
    update_job(store, job.id, lambda each, now: each.request_cancel(now))


def abandon_twice(store: MemoryJobStore, job: Job) -> None:
    for worker in ("w1", "w2"):
        held(store, job, worker=worker, length=OVER)


def job_with_output(job: Job, uri: str) -> Job:
    return job.model_copy(update={"spec": job.spec.model_copy(update={"output_uri": uri})})

"""A job that this process alone knows of, as `slipway export` runs it."""

from datetime import timedelta

from jobs.lease.leases import Holding, claim
from jobs.model import Job
from jobs.stores.memory_store import MemoryJobStore

NO_LIMIT = timedelta(days=365)  # a person is watching and can interrupt it
_WORKER = "slipway-export"


def claim_attempt(store: MemoryJobStore, job: Job) -> Holding:
    """Claim the job's next attempt for all its targets: it finds out itself which this machine can serve."""
    holding = claim(store, job.id, worker=_WORKER, length=NO_LIMIT, serves=job.pending_routes)
    assert holding is not None, "no other process knows of this job"
    return holding

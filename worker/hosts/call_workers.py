"""Attempts on several hosts: the worker that has the job calls others, through the queue."""

import socket
from dataclasses import dataclass, replace
from datetime import timedelta

from exporter.distributed.rendezvous import Rendezvous, find_free_port
from jobs.model import Job
from jobs.queue import HostCall, WorkerQueue
from worker.settings import WorkerSettings


@dataclass(frozen=True, kw_only=True)
class HostCaller:
    """Where other workers reach this one, and for how long it waits for them."""

    address: str
    port: int = 0  # any that is free
    time_limit: timedelta = timedelta(minutes=10)

    @classmethod
    def from_settings(cls, settings: WorkerSettings) -> "HostCaller":
        """As the settings have it; by default, the address of the host's name, or else that name."""
        return cls(
            address=settings.rdzv_host or _own_address(),
            port=settings.rdzv_port,
            time_limit=settings.rdzv_time_limit,
        )

    def call_hosts(self, job: Job, queue: WorkerQueue) -> Rendezvous | None:
        """Call the other hosts of the job's attempt; None of a job that is to run on one.

        Raises:
            StoreUnavailable: they could not be called.
        """
        if job.hosts == 1:
            return None
        call = HostCall(
            job_id=job.id,
            attempt=job.attempt,
            hosts=job.hosts,
            address=self.address,
            port=self.port or find_free_port(),
            time_limit_s=self.time_limit.total_seconds(),
        )
        for _ in range(1, job.hosts):
            queue.call_host(call, job.current_target)
        return replace(meeting_place_of(call), leads=True)


def _own_address() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError:  # most workers call nobody, and need none; of those that do, the attempt says so
        return name


def meeting_place_of(call: HostCall) -> Rendezvous:
    """Where a called worker meets the one that called it."""
    return Rendezvous(
        hosts=call.hosts,
        address=call.address,
        port=call.port,
        time_limit=timedelta(seconds=call.time_limit_s),
        leads=False,
    )

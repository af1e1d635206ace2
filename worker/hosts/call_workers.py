"""Attempts on several hosts: the worker that holds the job calls other workers through the queue."""

import socket
from dataclasses import dataclass, replace
from datetime import timedelta

from exporter.distributed.rendezvous import Rendezvous, find_free_port
from jobs.model import Job
from jobs.queue import HostCall, WorkerQueue
from worker.settings import WorkerSettings


@dataclass(frozen=True, kw_only=True)
class HostCaller:
    """Calls other workers: the address where they meet this one, and how long it waits for them."""

    address: str
    port: int = 0  # 0: any free port
    time_limit: timedelta = timedelta(minutes=10)

    @classmethod
    def from_settings(cls, settings: WorkerSettings) -> "HostCaller":
        """Return the caller that the settings describe; the default address is that of the host's name."""
        return cls(
            address=settings.rdzv_host or _own_address(),
            port=settings.rdzv_port,
            time_limit=settings.rdzv_time_limit,
        )

    def call_hosts(self, job: Job, queue: WorkerQueue) -> Rendezvous | None:
        """Call the other hosts of the job's attempt and return the meeting place; None for a single host.

        Raises:
            StoreUnavailable: the queue could not be reached.
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
            queue.call_host(call, job.current_route)
        return replace(rendezvous_of(call), leads=True)


def _own_address() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError:  # only workers that call others need an address, and their attempt reports it
        return name


def rendezvous_of(call: HostCall) -> Rendezvous:
    """Return the place where a called worker meets the worker that called it."""
    return Rendezvous(
        hosts=call.hosts,
        address=call.address,
        port=call.port,
        time_limit=timedelta(seconds=call.time_limit_s),
        leads=False,
    )

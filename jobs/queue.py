"""Telling the workers of a job: the queue carries ids, and the job store knows the truth."""

import logging
from collections.abc import Sequence
from typing import Protocol

from exporter.spec import Target
from jobs.errors import StoreUnavailable
from jobs.ids import JobId
from jobs.model import Job
from jobs.request import Priority


class JobQueue(Protocol):
    """Tells the workers of a job; may forget, may repeat."""

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL, target: Target = "cpu") -> None:
        """Send a message to the workers that serve a target."""
        ...

    def undelivered(self, target: Target = "cpu") -> frozenset[JobId]:
        """Jobs that a message on its way to the workers of a target names."""
        ...

    def waiting(self, targets: Sequence[Target]) -> int:
        """How many messages lie in the queues of these targets."""
        ...


class MemoryQueue:
    """Messages in a list, for tests."""

    def __init__(self) -> None:
        """Begin empty."""
        self.sent: list[JobId] = []
        self.targets: list[Target] = []  # of each

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL, target: Target = "cpu") -> None:
        self.sent.append(job_id)
        self.targets.append(target)

    def undelivered(self, target: Target = "cpu") -> frozenset[JobId]:
        sent = zip(self.sent, self.targets, strict=True)
        return frozenset(job_id for job_id, sent_to in sent if sent_to == target)

    def waiting(self, targets: Sequence[Target]) -> int:
        return sum(target in targets for target in self.targets)


def tell_workers(queue: JobQueue, job: Job) -> None:
    """Enqueue a job for every target it waits for; whoever is first takes it, and the rest finds it taken."""
    for target in job.pending_targets:
        queue.enqueue(job.id, job.priority, target)


def enqueue_if_possible(queue: JobQueue, job: Job) -> None:
    """Enqueue; on failure leave it to the workers' sweep, which finds queued jobs without a message."""
    try:
        tell_workers(queue, job)
    except StoreUnavailable:
        logging.getLogger(__name__).warning("enqueue_failed", extra={"job_id": job.id})

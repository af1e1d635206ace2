"""Telling the workers of a job: the queue carries ids, and the job store knows the truth."""

import logging
from typing import Protocol

from jobs.errors import StoreUnavailable
from jobs.ids import JobId
from jobs.model import Job
from jobs.request import Priority


class JobQueue(Protocol):
    """Tells the workers of a job; may forget, may repeat."""

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL) -> None: ...

    def undelivered(self) -> frozenset[JobId]:
        """Jobs that a message on its way names."""
        ...


class MemoryQueue:
    """Messages in a list, for tests."""

    def __init__(self) -> None:
        """Begin empty."""
        self.sent: list[JobId] = []

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL) -> None:
        self.sent.append(job_id)

    def undelivered(self) -> frozenset[JobId]:
        return frozenset(self.sent)


def enqueue_if_possible(queue: JobQueue, job: Job) -> None:
    """Enqueue; on failure leave it to the workers' sweep, which finds queued jobs without a message."""
    try:
        queue.enqueue(job.id, job.priority)
    except StoreUnavailable:
        logging.getLogger(__name__).warning("enqueue_failed", extra={"job_id": job.id})

"""The queue: messages with job ids that make workers look at the job store, which knows the truth."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, NamedTuple, Protocol

from pydantic import AfterValidator, Field

from exporter.spec import MAX_RANKS, Frozen
from jobs.errors import StoreUnavailable
from jobs.ids import JobId, require_job_id
from jobs.model import Job
from jobs.request import Priority
from jobs.route import Route

_LONGEST_WAIT_S = 365 * 86_400.0


class HostCall(Frozen):
    """A call to a worker to run some of the ranks of an attempt: which attempt, and where its hosts meet."""

    job_id: Annotated[JobId, AfterValidator(require_job_id)]
    attempt: Annotated[int, Field(ge=1)]
    hosts: Annotated[int, Field(ge=2, le=MAX_RANKS)]
    address: Annotated[str, Field(min_length=1, max_length=255)]
    port: Annotated[int, Field(ge=1, le=65_535)]
    time_limit_s: Annotated[float, Field(gt=0, le=_LONGEST_WAIT_S)]  # how long the others wait for this host


class Message(NamedTuple):
    """A message as it will lie in Redis: the list that it goes to, and its text."""

    key: str
    text: str


# Stores a new job and sends these messages in one step; returns the job that is there instead, or None.
AddJob = Callable[[Sequence[Message]], JobId | None]
AddJobAsync = Callable[[Sequence[Message]], Awaitable[JobId | None]]


class JobQueue(Protocol):
    """Sends messages to the workers; may lose and repeat them."""

    def enqueue_new(self, job: Job, add: AddJob) -> JobId | None:
        """Have `add` store a job, and enqueue it on its routes; return what `add` returns.

        A queue in the Redis of the job store gives `add` the messages; others send them afterwards.
        """
        ...

    async def enqueue_new_async(self, job: Job, add: AddJobAsync) -> JobId | None:
        """Do as `enqueue_new`, on an event loop."""
        ...

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL, route: Route = "cpu") -> None:
        """Send a message about a job to the workers of a route."""
        ...

    def find_undelivered(self, route: Route = "cpu") -> frozenset[JobId]:
        """Return the jobs named by messages to a route's workers that no worker has finished with."""
        ...

    def count_waiting(self, routes: Sequence[Route]) -> int:
        """Return the number of messages that lie in the queues of these routes."""
        ...


class WorkerQueue(JobQueue, Protocol):
    """The queue as workers use it: they also call each other."""

    def call_host(self, call: HostCall, route: Route = "cpu") -> None:
        """Call one more worker of a route."""
        ...


class MemoryQueue:
    """Messages in a list, for tests."""

    def __init__(self) -> None:
        """Start without messages."""
        self.sent: list[JobId] = []
        self.routes: list[Route] = []  # the route of each
        self.calls: list[HostCall] = []

    def enqueue_new(self, job: Job, add: AddJob) -> JobId | None:
        instead = add(())
        if instead is None:
            enqueue_if_possible(self, job)
        return instead

    async def enqueue_new_async(self, job: Job, add: AddJobAsync) -> JobId | None:
        instead = await add(())
        if instead is None:
            enqueue_if_possible(self, job)
        return instead

    def enqueue(self, job_id: JobId, priority: Priority = Priority.NORMAL, route: Route = "cpu") -> None:
        self.sent.append(job_id)
        self.routes.append(route)

    def call_host(self, call: HostCall, route: Route = "cpu") -> None:
        self.calls.append(call)

    def find_undelivered(self, route: Route = "cpu") -> frozenset[JobId]:
        sent = zip(self.sent, self.routes, strict=True)
        return frozenset(job_id for job_id, sent_on in sent if sent_on == route)

    def count_waiting(self, routes: Sequence[Route]) -> int:
        return sum(route in routes for route in self.routes)


def enqueue_for_targets(queue: JobQueue, job: Job) -> None:
    """Enqueue a job for every target it waits for; the first worker claims it, and the others ignore it."""
    for route in job.pending_routes:
        queue.enqueue(job.id, job.priority, route)


def enqueue_if_possible(queue: JobQueue, job: Job) -> None:
    """Enqueue a job; if that fails, the workers' sweep finds it as queued without a message."""
    try:
        enqueue_for_targets(queue, job)
    except StoreUnavailable:
        logging.getLogger(__name__).warning("enqueue_failed", extra={"job_id": job.id})

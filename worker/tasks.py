"""The Celery tasks: run the job that a message names and record its end, or help another worker's job."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from celery import Celery, Task
from pydantic import JsonValue
from structlog.contextvars import bound_contextvars

from jobs.celery_messages import JOIN_EXPORT, RUN_EXPORT
from jobs.celery_queue import CeleryQueue
from jobs.errors import LeaseLost, StoreUnavailable
from jobs.fleet.tallies import Tallies, count_attempt
from jobs.ids import JobId
from jobs.lease.lease_expiry import LeaseMonitor
from jobs.lease.leases import Holding, claim, join_attempt
from jobs.lease.orphans import take_orphan
from jobs.model import Job, JobState
from jobs.queue import HostCall, WorkerQueue, enqueue_if_possible
from jobs.stores.job_store import JobStore
from telemetry.logging import logger
from telemetry.tracing import SpanKind, Tracing
from worker.attempt.finalize import close_orphan
from worker.hosts.call_workers import HostCaller, rendezvous_of
from worker.machine.targets import Machine
from worker.supervisor import Supervisor

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Runner:
    """Runs, joins and closes jobs, given their ids."""

    store: JobStore
    queue: WorkerQueue
    lease_monitor: LeaseMonitor
    supervisor: Supervisor
    worker: str
    lease: timedelta
    pause: timedelta = timedelta(0)  # before the next attempt at a job that broke
    tallies: Tallies
    machine: Machine
    host_caller: HostCaller = field(default_factory=lambda: HostCaller(address="127.0.0.1"))
    tracing: Tracing = field(default_factory=Tracing)
    running: set[JobId] = field(default_factory=set)  # read by the heartbeat

    def run(self, job_id: JobId, on_beat: Callable[[], None] = lambda: None) -> None:
        """Run the job; do nothing if another worker holds it or it has ended."""
        asked_at = time.time()
        holding = claim(
            self.store,
            job_id,
            worker=self.worker,
            length=self.lease,
            serves=self.machine.routes,
            pause=self.pause,
            may_expire=self.lease_monitor.may_expire,
        )
        if holding is None:
            log.info("job_not_claimed", job_id=job_id)
            return
        self.tracing.record("claim", asked_at, time.time(), parent=holding.job.traceparent)
        self.running.add(job_id)
        try:
            with bound_contextvars(job_id=job_id, attempt=holding.job.attempt):
                job = self._run_attempt(holding, on_beat)
        finally:
            self.running.discard(job_id)
        if job is None:
            return
        self._count_attempt(job)
        self._notify_workers(job)

    def _notify_workers(self, job: Job) -> None:
        """Send a message for a job that is to go on at once."""
        at_once = job.not_before is None and not job.cancel_requested  # else the sweep does it later
        if job.state is JobState.QUEUED and at_once:
            enqueue_if_possible(self.queue, job)

    def _run_attempt(self, holding: Holding, on_beat: Callable[[], None]) -> Job | None:
        attributes: dict[str, str | int | float] = {
            "slipway.job": holding.job.id,
            "slipway.attempt": holding.job.attempt,
            "slipway.worker": self.worker,
        }
        with self.tracing.span(
            "attempt", SpanKind.CONSUMER, parent=holding.job.traceparent, attributes=attributes
        ) as span:
            place = self.host_caller.call_hosts(holding.job, self.queue)
            job = self.supervisor.run(holding, on_beat, traceparent=span.traceparent, place=place)
            span.note({"slipway.state": job.state if job else "lost"})
            if job is not None and job.failure is not None:
                span.fail(f"{job.failure.code}: {job.failure.message}")
            return job

    def join(self, call: HostCall, on_beat: Callable[[], None] = lambda: None) -> None:
        """Run some of the ranks of another worker's attempt; do nothing if that has ended."""
        part = join_attempt(self.store, call.job_id, call.attempt, self.lease)
        if part is None:
            log.info("attempt_not_joined", job_id=call.job_id)
            return
        self.running.add(call.job_id)
        try:
            with bound_contextvars(job_id=call.job_id, attempt=call.attempt):
                self.supervisor.join(part, rendezvous_of(call), on_beat)
        finally:
            self.running.discard(call.job_id)

    def close(self, job_id: JobId, ended: datetime, stopped: threading.Event | None = None) -> None:
        """End a job that nobody works on any more, if its lease still ends at `ended`; else do nothing.

        Raises:
            StorageError, StoreUnavailable: it failed for now.
            Stopped: `stopped` was set.
        """
        orphan = take_orphan(self.store, job_id, ended, worker=self.worker, length=self.lease)
        if orphan is None:
            return
        with bound_contextvars(job_id=job_id, attempt=orphan.job.attempt):
            try:
                job = close_orphan(orphan, self.supervisor.signing_key, stopped)
            except LeaseLost as error:
                log.warning("lease_lost", message=error.message)
                return
            log.info("job_closed", state=job.state)
        if orphan.job.state is JobState.RUNNING:  # the worker that ran its last attempt could not count it
            self._count_attempt(job)
        self._notify_workers(job)

    def _count_attempt(self, job: Job) -> None:
        try:
            self.tallies.add(count_attempt(job))
        except StoreUnavailable as error:
            log.warning("attempt_not_counted", message=error.message)


def register_tasks(app: Celery, runner: Runner, queue: CeleryQueue) -> None:
    """Register the tasks that `runner` carries out."""

    @app.task(name=RUN_EXPORT, bind=True)
    def run_export(task: "Task[[str], None]", job_id: str) -> None:
        tag: str = task.request.properties["delivery_tag"]
        runner.run(JobId(job_id), on_beat=lambda: queue.put_off_redelivery(tag))

    @app.task(name=JOIN_EXPORT, bind=True)
    def join_export(task: "Task[[dict[str, JsonValue]], None]", call: dict[str, JsonValue]) -> None:
        tag: str = task.request.properties["delivery_tag"]
        runner.join(HostCall.model_validate(call), on_beat=lambda: queue.put_off_redelivery(tag))

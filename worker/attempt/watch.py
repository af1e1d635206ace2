"""Watch the ranks of an attempt: renew the lease, save events and log lines, obey time limit and cancel."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property

from exporter.outcome import Failure
from jobs.diagnostics.logs import JobLogs
from jobs.errors import LeaseLost, StoreUnavailable
from jobs.lease.leases import Holding
from jobs.model import Job
from processes.guarded_process import GuardedProcess
from telemetry.logging import logger
from worker.attempt.attempt_result import AttemptResult, Cancelled, HandedBack, NoOutcome
from worker.attempt.events import EventTail, log_events
from worker.attempt.logs import LogTail
from worker.attempt.outcome import timeout_error
from worker.attempt.workspace import Workspace
from worker.lease.lease_proof import LeaseProof, clock

log = logger(__name__)

_GLANCE_S = 0.02  # between two looks at whether the ranks have begun, which cost the store nothing


@dataclass(frozen=True, kw_only=True)
class WatchPolicy:
    """The settings of the watch over ranks, whichever attempt they belong to."""

    time_limit: timedelta
    logs: JobLogs  # where log lines are stored
    secrets: tuple[str, ...]  # blotted out of log lines
    poll_s: float
    stopping: threading.Event = field(default_factory=threading.Event)  # set when the worker is to stop


@dataclass(frozen=True, kw_only=True)
class RankWatch:
    """The watch over the ranks of one attempt on this machine."""

    holding: Holding
    workspace: Workspace
    process: GuardedProcess
    policy: WatchPolicy
    on_beat: Callable[[], None]  # called several times a second

    def wait(self) -> AttemptResult | None:
        """Watch until the ranks exit by themselves (None), or return the reason to end them."""
        deadline = clock() + self.policy.time_limit.total_seconds()
        running = True
        while running:
            if self._pause():
                return HandedBack()
            running = self.process.exit_status() is None  # asked before the events are read for the last time
            job = self._renew_lease()
            if running and job is not None and job.cancel_requested:
                return Cancelled()
            if running and clock() > deadline:
                return NoOutcome(Failure.of(timeout_error(self.policy.time_limit, self.process)))
        return None

    def _pause(self) -> bool:
        """Wait for the next look, until ranks begin or end; return whether the worker is to stop."""
        deadline = clock() + self.policy.poll_s
        while (left := deadline - clock()) > 0:
            if self.policy.stopping.is_set():
                return True
            glance = timedelta(seconds=min(left, _GLANCE_S))
            if self.process.wait(glance) is not None or self._tail.has_first():
                break
        return self.policy.stopping.is_set()

    def forward_logs(self) -> None:
        """Store new log lines; if that fails, the attempt continues."""
        try:
            self._lines.forward()
        except StoreUnavailable as error:
            log.warning("job_store_away", message=error.message)

    def _renew_lease(self) -> Job | None:
        """Renew the lease and save the new events; if the store is away, the next beat tries again."""
        events, asked_at = self._tail.read(), clock()
        try:
            renewal = self.holding.renew(events)
            self._proof.renew(asked_at, renewal.remaining)
            log_events(events)
            self.forward_logs()
            self.on_beat()
            return renewal.job
        except LeaseLost:
            self._proof.withdraw()
            raise
        except StoreUnavailable as error:
            self._tail.put_back(events)
            log.warning("job_store_away", message=error.message)
            return None

    @cached_property
    def _tail(self) -> EventTail:
        return EventTail(self.workspace.path)

    @cached_property
    def _proof(self) -> LeaseProof:
        return LeaseProof(self.workspace.path, self.holding.length)

    @cached_property
    def _lines(self) -> LogTail:
        return LogTail(self.workspace.log, self.policy.logs, self.holding.job.id, self.policy.secrets)

"""Finalize a job before it ends: adopt the artifact that its attempts published, or remove what they left."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from exporter.artifact.read import recover_published_outcome, sign_artifact
from exporter.artifact.signing import SigningKey
from exporter.artifact.upload import remove_unfinished_artifact
from exporter.errors import ExportError, SignatureRefused, StorageError
from exporter.outcome import ExportOutcome, Failure
from exporter.spec import TowerName
from exporter.storage.store import Permission
from jobs.errors import JobNotFound, LeaseLost, StoreUnavailable
from jobs.lease.leases import Holding, ends_target
from jobs.lease.orphans import OrphanedJob
from jobs.model import Job, JobState
from jobs.progress import finish
from telemetry.logging import logger
from worker.attempt.attempt_result import AttemptResult, Cancelled, Finished, HandedBack, NoOutcome
from worker.attempt.workspace import artifact_uri_of, open_output_of
from worker.lease.lease_renewal import Stopped, renew_lease

log = logger(__name__)

_RETRY_LIMIT_S = 300.0
_RETRY_S = 2.0


@dataclass(frozen=True, kw_only=True)
class WaitPolicy:
    """The time limit, the stop signal and the heartbeat of waits while an attempt is finalized."""

    retry_limit_s: float = _RETRY_LIMIT_S  # for transient errors
    stopped: threading.Event = field(default_factory=threading.Event)  # set when the worker is to stop
    on_beat: Callable[[], None] = lambda: None  # called several times per lease


_DEFAULT_POLICY = WaitPolicy()


def finalize_artifact(
    result: AttemptResult, holding: Holding, policy: WaitPolicy = _DEFAULT_POLICY
) -> AttemptResult:
    """Adopt what the job's attempts published, or remove what they left, if no further attempt follows.

    Return the result, or a new one if an artifact was adopted. If the worker is to stop before that is done,
    the job is handed back.

    Raises:
        LeaseLost: another worker holds the job.
        StoreUnavailable: the job store could not be reached for minutes.
    """
    job, deadline = holding.job, _RetryDeadline(policy.retry_limit_s, policy.stopped)

    def renew() -> timedelta:
        remaining = holding.renew().remaining
        policy.on_beat()
        return remaining

    def finalize() -> AttemptResult:
        if not _is_last(result, holding):
            return result
        with renew_lease(renew, holding.length, policy.stopped) as lease:
            towers = tuple(tower.name for tower in job.current_towers)
            outcome = _adopt_or_remove(artifact_uri_of(job), job, towers, lease.require, deadline.reset)
        return result if outcome is None else Finished(outcome)

    def give_up(error: ExportError) -> AttemptResult:
        if isinstance(error, StoreUnavailable):
            raise error
        log.warning("unfinished_artifact_left", uri=artifact_uri_of(job), message=error.message)
        return result

    try:
        return _retry_transient(finalize, give_up, deadline)
    except Stopped:
        return HandedBack()


def sign_published(
    result: AttemptResult, holding: Holding, key: SigningKey | None, policy: WaitPolicy = _DEFAULT_POLICY
) -> AttemptResult:
    """Sign the artifact that the result published; return the result, or a failure if that is not possible.

    A worker that is to stop still does this, because nobody else knows the manifest's digest.

    Raises:
        LeaseLost: another worker holds the job.
    """
    if key is None or not isinstance(result, Finished) or not result.outcome.manifest_uri:
        return result
    job, sha256 = holding.job, result.outcome.manifest_sha256

    def sign() -> AttemptResult:
        holding.renew()
        policy.on_beat()
        sign_artifact(artifact_uri_of(job), job.id, key, sha256, opened=partial(open_output_of, job))
        return result

    return _retry_transient(
        sign, lambda error: NoOutcome(Failure.of(error)), _RetryDeadline(policy.retry_limit_s)
    )


def close_orphan(orphan: OrphanedJob, key: SigningKey | None, stopped: threading.Event | None = None) -> Job:
    """End a job that nobody works on any more: adopt the artifact it left, or end it without one.

    Raises:
        LeaseLost: another worker holds the job.
        StorageError, StoreUnavailable: it failed for now; another sweep will try again.
        Stopped: the worker is to stop; another sweep will try again.
    """
    job, refused = orphan.job, None
    with renew_lease(orphan.renew, orphan.length, stopped) as lease:
        for target in orphan.targets:
            uri = artifact_uri_of(job, target)
            try:
                outcome = _adopt_or_remove(uri, job, orphan.towers(target), lease.require)
                if outcome is None:
                    continue
                if key is not None:
                    opened = partial(open_output_of, job)
                    sign_artifact(uri, job.id, key, outcome.manifest_sha256, opened=opened)
            except ExportError as error:
                if _is_transient(error) or isinstance(error, LeaseLost):
                    raise
                log.warning("artifact_not_adopted", uri=uri, message=error.message)
                if isinstance(error, SignatureRefused):  # other errors say less than why the attempts ended
                    refused = Failure.of(error)
                continue
            return orphan.adopt(target, outcome)
    return orphan.end(refused)


def clean_up_after_loss(holding: Holding, policy: WaitPolicy = _DEFAULT_POLICY) -> None:
    """Remove what the attempt may have written after another worker ended its target.

    The attempt's own processes have ended by now. Wait while another worker is about to end the job; a next
    attempt removes leftovers itself.
    """
    deadline, uri = _RetryDeadline(policy.retry_limit_s, policy.stopped), artifact_uri_of(holding.job)
    while True:
        try:
            job = holding.store.get(holding.job.id)
            if _has_ended(job, holding):
                opened = partial(open_output_of, job)
                remove_unfinished_artifact(uri, on_removed=deadline.reset, opened=opened)
            elif _is_being_closed(job, holding):
                raise StorageError(f"job {job.id} has not ended yet")
            return
        except JobNotFound:
            return
        except ExportError as error:
            if not _is_transient(error) or deadline.is_over() or policy.stopped.wait(_RETRY_S):
                log.warning("unfinished_artifact_left", uri=uri, message=error.message)
                return


def _has_ended(job: Job, holding: Holding) -> bool:
    """True if no attempt will write again where this one did."""
    return job.state.is_final or holding.job.current_target in job.ended_targets


def _is_being_closed(job: Job, holding: Holding) -> bool:
    """True if no attempt follows this one although the job has not ended yet."""
    if job.attempt != holding.job.attempt:
        return False
    return job.state is JobState.RUNNING or job.cancel_requested


def _adopt_or_remove(
    artifact_uri: str,
    job: Job,
    towers: Sequence[TowerName],
    still_ours: Permission,
    on_removed: Callable[[], None] = lambda: None,
) -> ExportOutcome | None:
    """Return the outcome of the artifact published there; without one, remove leftovers and return None."""
    still_ours()
    opened = partial(open_output_of, job)
    outcome = recover_published_outcome(artifact_uri, job.id, towers, still_ours, opened=opened)
    if outcome is None:
        remove_unfinished_artifact(artifact_uri, still_ours, on_removed, opened=opened)
    return outcome


def _is_last(result: AttemptResult, holding: Holding) -> bool:
    """True if no attempt follows this one and, as far as is known, nothing was published."""
    match result:
        case HandedBack():
            return False
        case Cancelled():
            return True
        case Finished(outcome):
            job = holding.renew().job
            return not outcome.manifest_uri and ends_target(job, finish(job, outcome, job.updated_at))
        case NoOutcome(failure):
            job = holding.renew().job
            return ends_target(job, job.set_back(failure, job.updated_at))


@dataclass
class _RetryDeadline:
    """Time limit for retrying transient errors, measured from the first error and reset by every progress."""

    length_s: float
    stopped: threading.Event = field(default_factory=threading.Event)
    _deadline: float | None = None

    def reset(self) -> None:
        self._deadline = None

    def is_over(self) -> bool:
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self.length_s
        return now >= self._deadline

    def pause(self) -> None:
        if self.stopped.wait(_RETRY_S):
            raise Stopped


def _retry_transient(
    act: Callable[[], AttemptResult],
    give_up: Callable[[ExportError], AttemptResult],
    deadline: _RetryDeadline,
) -> AttemptResult:
    """Call `act` until it succeeds; return `give_up(error)` after another error, or past the deadline.

    Raises:
        LeaseLost: another worker holds the job.
        Stopped: the worker is to stop.
    """
    while True:
        try:
            return act()
        except LeaseLost:
            raise
        except ExportError as error:
            if not _is_transient(error) or deadline.is_over():
                return give_up(error)
        deadline.pause()


def _is_transient(error: ExportError) -> bool:
    return isinstance(error, StoreUnavailable) or error.retryable

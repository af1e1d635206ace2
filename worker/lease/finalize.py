"""Before a job ends: what its attempts published is adopted, and what they left otherwise is removed."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from exporter.artifact.read import published_by_job, sign_artifact
from exporter.artifact.signing import SigningKey
from exporter.artifact.upload import remove_unfinished
from exporter.errors import ExportError, SignatureRefused, StorageError
from exporter.outcome import ExportOutcome, Failure
from exporter.spec import TowerName
from exporter.storage.store import Permission
from jobs.errors import JobNotFound, LeaseLost, StoreUnavailable
from jobs.lease.leases import Holding, ends_target
from jobs.lease.orphans import Closing
from jobs.model import Job, JobState
from jobs.progress import finish
from telemetry.logging import logger
from worker.attempt.attempt_result import Broken, Cancelled, Ending, Finished, HandedBack
from worker.attempt.workspace import artifact_uri_of
from worker.lease.lease_renewal import Stopped, kept

log = logger(__name__)

_PATIENCE_S = 300.0
_RETRY_S = 2.0


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How an attempt's end is waited for."""

    patience_s: float = _PATIENCE_S  # with what may pass
    stopped: threading.Event = field(default_factory=threading.Event)  # the worker is to end
    on_beat: Callable[[], None] = lambda: None  # called some times in each lease


_USUAL = Manner()


def settled(ending: Ending, holding: Holding, manner: Manner = _USUAL) -> Ending:
    """The same ending, once nothing is left of the job's attempts; or what they turn out to have published.

    Where another attempt follows, it will see to that. So it will where the worker is to end before: then
    the job is handed back.

    Raises:
        LeaseLost: the job is another's.
        StoreUnavailable: nobody could say whose it is for minutes.
    """
    job, patience = holding.job, _Patience(manner.patience_s, manner.stopped)

    def keep() -> timedelta:
        remaining = holding.keep().remaining
        manner.on_beat()
        return remaining

    def settle() -> Ending:
        if not _is_last(ending, holding):
            return ending
        with kept(keep, holding.length, manner.stopped) as lease:
            towers = tuple(tower.name for tower in job.current_towers)
            outcome = _standing(artifact_uri_of(job), job, towers, lease.require, patience.progressed)
        return ending if outcome is None else Finished(outcome)

    def leave(error: ExportError) -> Ending:
        if isinstance(error, StoreUnavailable):
            raise error
        log.warning("unfinished_artifact_left", uri=artifact_uri_of(job), message=error.message)
        return ending

    try:
        return _tried(settle, leave, patience)
    except Stopped:
        return HandedBack()


def signed(ending: Ending, holding: Holding, key: SigningKey | None, manner: Manner = _USUAL) -> Ending:
    """The same ending, once what it published is signed; a failure, if that is not possible.

    A worker that is to end goes on with that: nobody else knows what the attempt wrote.

    Raises:
        LeaseLost: the job is another's.
    """
    if key is None or not isinstance(ending, Finished) or not ending.outcome.manifest_uri:
        return ending
    job, sha256 = holding.job, ending.outcome.manifest_sha256

    def sign() -> Ending:
        holding.keep()
        manner.on_beat()
        sign_artifact(artifact_uri_of(job), job.id, key, sha256)
        return ending

    return _tried(sign, lambda error: Broken(Failure.of(error)), _Patience(manner.patience_s))


def close(closing: Closing, key: SigningKey | None, stopped: threading.Event | None = None) -> Job:
    """End a job that nobody is at work on, as what its attempts left would have it.

    Raises:
        LeaseLost: the job is another's.
        StorageError, StoreUnavailable: not now; another sweep will try again.
        Stopped: the worker is to end; another sweep will try again.
    """
    job, refused = closing.job, None
    with kept(closing.keep, closing.length, stopped) as lease:
        for target in closing.targets:
            uri = artifact_uri_of(job, target)
            try:
                outcome = _standing(uri, job, closing.towers(target), lease.require)
                if outcome is None:
                    continue
                if key is not None:
                    sign_artifact(uri, job.id, key, outcome.manifest_sha256)
            except ExportError as error:
                if _may_pass(error) or isinstance(error, LeaseLost):
                    raise
                log.warning("artifact_not_adopted", uri=uri, message=error.message)
                if isinstance(error, SignatureRefused):  # else why the attempts ended says more
                    refused = Failure.of(error)
                continue
            return closing.adopt(target, outcome)
    return closing.end(refused)


def clear_after_loss(holding: Holding, manner: Manner = _USUAL) -> None:
    """Remove what the attempt may have sent after its target was ended by another; it is ended itself by now.

    Who is about to end it is waited for. Another attempt sees to it itself.
    """
    patience, uri = _Patience(manner.patience_s, manner.stopped), artifact_uri_of(holding.job)
    while True:
        try:
            job = holding.store.get(holding.job.id)
            if _has_ended(job, holding):
                remove_unfinished(uri, on_removed=patience.progressed)
            elif _is_being_closed(job, holding):
                raise StorageError(f"job {job.id} has not ended yet")
            return
        except JobNotFound:
            return
        except ExportError as error:
            if not _may_pass(error) or patience.is_over() or manner.stopped.wait(_RETRY_S):
                log.warning("unfinished_artifact_left", uri=uri, message=error.message)
                return


def _has_ended(job: Job, holding: Holding) -> bool:
    """Whether nobody will be at work again where the attempt was."""
    return job.state.is_final or holding.job.current_target in job.ended_targets


def _is_being_closed(job: Job, holding: Holding) -> bool:
    """Whether no attempt follows this one, though the job is not yet ended."""
    if job.attempt != holding.job.attempt:
        return False
    return job.state is JobState.RUNNING or job.cancel_requested


def _standing(
    artifact_uri: str,
    job: Job,
    towers: Sequence[TowerName],
    still_ours: Permission,
    on_removed: Callable[[], None] = lambda: None,
) -> ExportOutcome | None:
    """What stands there as an artifact; else nothing is left there."""
    still_ours()
    outcome = published_by_job(artifact_uri, job.id, towers, still_ours)
    if outcome is None:
        remove_unfinished(artifact_uri, still_ours, on_removed)
    return outcome


def _is_last(ending: Ending, holding: Holding) -> bool:
    """Whether no attempt follows this one, and nothing was published as far as it knows."""
    match ending:
        case HandedBack():
            return False
        case Cancelled():
            return True
        case Finished(outcome):
            job = holding.keep().job
            return not outcome.manifest_uri and ends_target(job, finish(job, outcome, job.updated_at))
        case Broken(failure):
            job = holding.keep().job
            return ends_target(job, job.set_back(failure, job.updated_at))


@dataclass
class _Patience:
    """How long what may pass is tried again: from its first failure, and anew after progress."""

    length_s: float
    stopped: threading.Event = field(default_factory=threading.Event)
    _deadline: float | None = None

    def progressed(self) -> None:
        self._deadline = None

    def is_over(self) -> bool:
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self.length_s
        return now >= self._deadline

    def pause(self) -> None:
        if self.stopped.wait(_RETRY_S):
            raise Stopped


def _tried(
    act: Callable[[], Ending], give_up: Callable[[ExportError], Ending], patience: _Patience
) -> Ending:
    """Again and again, until it succeeds, cannot, or has failed for too long.

    Raises:
        Stopped: the worker is to end before.
    """
    while True:
        try:
            return act()
        except LeaseLost:
            raise
        except ExportError as error:
            if not _may_pass(error) or patience.is_over():
                return give_up(error)
        patience.pause()


def _may_pass(error: ExportError) -> bool:
    return isinstance(error, StoreUnavailable) or error.retryable

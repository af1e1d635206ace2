"""Before a job ends: what its attempts published is adopted, and what they left otherwise is removed."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from exporter.errors import ExportError, SignatureRefused
from exporter.outcome import ExportOutcome, Failure
from exporter.publish import remove_unfinished
from exporter.published import published_by_job, sign_artifact
from exporter.signing import SigningKey
from exporter.spec import TowerName
from exporter.storage.store import Permission
from jobs.closing import Closing
from jobs.errors import JobNotFound, LeaseLost, StoreUnavailable
from jobs.leases import Holding, ends_target
from jobs.model import Job, JobState
from jobs.progress import finish
from telemetry.logging import logger
from worker.endings import Broken, Cancelled, Ending, Finished, HandedBack
from worker.keeping import kept
from worker.workspace import place_of

log = logger(__name__)

_PATIENCE_S = 300.0
_RETRY_S = 2.0


def settled(ending: Ending, holding: Holding, patience_s: float = _PATIENCE_S) -> Ending:
    """The same ending, once nothing is left of the job's attempts; or what they turn out to have published.

    Where another attempt follows, it will see to that.

    Raises:
        LeaseLost: the job is another's.
        StoreUnavailable: nobody could say whose it is for minutes.
    """
    job, patience = holding.job, _Patience(patience_s)

    def settle() -> Ending:
        if not _is_last(ending, holding):
            return ending
        with kept(lambda: holding.keep().remaining, holding.length) as lease:
            towers = tuple(tower.name for tower in job.current_towers)
            outcome = _standing(place_of(job), job, towers, lease.require, patience.progressed)
        return ending if outcome is None else Finished(outcome)

    def leave(error: ExportError) -> Ending:
        if isinstance(error, StoreUnavailable):
            raise error
        log.warning("unfinished_artifact_left", uri=place_of(job), message=error.message)
        return ending

    return _tried(settle, leave, patience)


def signed(
    ending: Ending, holding: Holding, key: SigningKey | None, patience_s: float = _PATIENCE_S
) -> Ending:
    """The same ending, once what it published is signed; a failure, if that is not possible.

    Raises:
        LeaseLost: the job is another's.
    """
    if key is None or not isinstance(ending, Finished) or not ending.outcome.manifest_uri:
        return ending
    job, sha256 = holding.job, ending.outcome.manifest_sha256

    def sign() -> Ending:
        holding.keep()
        sign_artifact(place_of(job), job.id, key, sha256)
        return ending

    return _tried(sign, lambda error: Broken(Failure.of(error)), _Patience(patience_s))


def close(closing: Closing, key: SigningKey | None) -> Job:
    """End a job that nobody is at work on, as what its attempts left would have it.

    Raises:
        LeaseLost: the job is another's.
        StorageError, StoreUnavailable: not now; another sweep will try again.
    """
    job, refused = closing.job, None
    with kept(closing.keep, closing.length) as lease:
        for target in closing.targets:
            place = place_of(job, target)
            try:
                outcome = _standing(place, job, closing.towers(target), lease.require)
                if outcome is None:
                    continue
                if key is not None:
                    sign_artifact(place, job.id, key, outcome.manifest_sha256)
            except ExportError as error:
                if _may_pass(error) or isinstance(error, LeaseLost):
                    raise
                log.warning("artifact_not_adopted", uri=place, message=error.message)
                if isinstance(error, SignatureRefused):  # else why the attempts ended says more
                    refused = Failure.of(error)
                continue
            return closing.adopt(target, outcome)
    return closing.end(refused)


def clear_after_loss(holding: Holding) -> None:
    """Remove what the attempt may have sent after its job was ended by another; it is ended itself by now."""
    try:
        job = holding.store.get(holding.job.id)
        if job.state in (JobState.FAILED, JobState.CANCELLED):
            remove_unfinished(place_of(holding.job))
    except (JobNotFound, StoreUnavailable):
        return
    except ExportError as error:
        log.warning("unfinished_artifact_left", uri=place_of(holding.job), message=error.message)


def _standing(
    place: str,
    job: Job,
    towers: Sequence[TowerName],
    still_ours: Permission,
    on_removed: Callable[[], None] = lambda: None,
) -> ExportOutcome | None:
    """What stands there as an artifact; else nothing is left there."""
    still_ours()
    outcome = published_by_job(place, job.id, towers, still_ours)
    if outcome is None:
        remove_unfinished(place, still_ours, on_removed)
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
    _deadline: float | None = None

    def progressed(self) -> None:
        self._deadline = None

    def is_over(self) -> bool:
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self.length_s
        return now >= self._deadline


def _tried(
    act: Callable[[], Ending], give_up: Callable[[ExportError], Ending], patience: _Patience
) -> Ending:
    """Again and again, until it succeeds, cannot, or has failed for too long."""
    while True:
        try:
            return act()
        except LeaseLost:
            raise
        except ExportError as error:
            if not _may_pass(error) or patience.is_over():
                return give_up(error)
        time.sleep(_RETRY_S)


def _may_pass(error: ExportError) -> bool:
    return isinstance(error, StoreUnavailable) or error.retryable

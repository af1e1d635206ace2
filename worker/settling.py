"""Before a job ends: what its attempts published is adopted, and what they left otherwise is removed."""

import time
from collections.abc import Callable, Sequence

from exporter.errors import ExportError
from exporter.outcome import ExportOutcome
from exporter.publish import remove_unfinished
from exporter.published import published_by_job
from exporter.signing import SigningKey
from exporter.spec import TowerName
from jobs.closing import Closing
from jobs.errors import JobNotFound, LeaseLost, StoreUnavailable
from jobs.leases import Holding, ends_target
from jobs.model import Job, JobState
from jobs.progress import finish
from telemetry.logging import logger
from worker.endings import Broken, Cancelled, Ending, Finished, HandedBack, signed
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
    deadline = time.monotonic() + patience_s
    while True:
        try:
            if not _is_last(ending, holding):
                return ending
            job = holding.job
            with kept(lambda: holding.keep().remaining, holding.length) as lease:
                towers = tuple(tower.name for tower in job.current_towers)
                outcome = _standing(place_of(job), job, towers, lease.require)
            return ending if outcome is None else Finished(outcome)
        except LeaseLost:
            raise
        except ExportError as error:
            if not _may_pass(error) or time.monotonic() > deadline:
                if isinstance(error, StoreUnavailable):
                    raise
                log.warning("unfinished_artifact_left", uri=place_of(holding.job), message=error.message)
                return ending
        time.sleep(_RETRY_S)


def close(closing: Closing, key: SigningKey | None) -> Job:
    """End a job that nobody is at work on, as what its attempts left would have it.

    Raises:
        LeaseLost: the job is another's.
        StorageError, StoreUnavailable: not now; another sweep will try again.
    """
    job = closing.job
    with kept(closing.keep, closing.length) as lease:
        for target in closing.targets:
            place = place_of(job, target)
            try:
                outcome = _standing(place, job, closing.towers(target), lease.require)
            except ExportError as error:
                if _may_pass(error) or isinstance(error, LeaseLost):
                    raise
                log.warning("unfinished_artifact_left", uri=place, message=error.message)
                continue
            if outcome is not None and isinstance(signed(Finished(outcome), job, key, place), Finished):
                return closing.adopt(target, outcome)
    return closing.end()


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
    place: str, job: Job, towers: Sequence[TowerName], still_ours: Callable[[], object]
) -> ExportOutcome | None:
    """What stands there as an artifact; else nothing is left there."""
    still_ours()
    outcome = published_by_job(place, job.id, towers, still_ours)
    if outcome is None:
        remove_unfinished(place, still_ours)
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


def _may_pass(error: ExportError) -> bool:
    return isinstance(error, StoreUnavailable) or error.retryable

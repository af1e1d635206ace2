"""What became of an attempt: reading it from what its ranks left, and writing it into the job's record."""

import time
from datetime import timedelta

from pydantic import ValidationError

from exporter.errors import AttemptFailed, AttemptTimedOut
from exporter.outcome import ExportOutcome, Failure
from jobs.errors import StoreUnavailable
from jobs.lease.leases import Holding
from jobs.model import Job
from processes.guarded_process import GuardedProcess
from processes.log_end import end_of
from worker.attempt.attempt_result import Broken, Cancelled, Ending, Finished, HandedBack
from worker.attempt.failed_rank import failed_rank
from worker.attempt.workspace import Workspace

_LOG_LINES = 20
_A_RANK_FAILED = 1  # exit status of `worker.attempt.ranks`
_STORE_PATIENCE_S = 300.0
_STORE_RETRY_S = 1.0


def outcome_of(workspace: Workspace, process: GuardedProcess) -> Ending:
    """How an attempt ended that ended by itself."""
    status = process.exit_status()
    if status != 0:
        if (failure := workspace.failure_of_rank()) is not None:
            return Finished(ExportOutcome(failure=failure))
        told = failed_rank(end_of(process.log)) if status == _A_RANK_FAILED else None
        return Broken(
            Failure.of(_failed(told) if told else _broke(f"ended with exit status {status}", process))
        )
    try:
        outcome = workspace.outcome()
    except ValidationError as error:
        return Broken(Failure.of(_broke(f"wrote an unreadable outcome ({error})", process)))
    if outcome is None:
        return Broken(Failure.of(_broke("ended without an outcome", process)))
    return Finished(outcome)


def _failed(told: str) -> AttemptFailed:
    return AttemptFailed(told, hint="a rank killed by SIGKILL had most often too little memory")


def _broke(what: str, process: GuardedProcess) -> AttemptFailed:
    return AttemptFailed(
        f"the attempt's processes {what}; the log ends:\n{process.last_lines(_LOG_LINES)}",
        hint="the log's last lines tell the cause; status 137 is often too little memory",
    )


def timed_out(limit: timedelta, process: GuardedProcess) -> AttemptTimedOut:
    """Why an attempt was ended."""
    return AttemptTimedOut(
        f"the attempt took longer than {limit} and was ended; the log ends:\n"
        f"{process.last_lines(_LOG_LINES)}",
        hint="raise SLIPWAY_ATTEMPT_TIME_LIMIT (seconds), or look in the log for what hangs",
    )


def record(holding: Holding, ending: Ending) -> Job:
    """Write the end down; an outcome is worth waiting for a store that is away."""
    deadline = time.monotonic() + _STORE_PATIENCE_S
    while True:
        try:
            return _write(holding, ending)
        except StoreUnavailable:
            if isinstance(ending, HandedBack) or time.monotonic() > deadline:
                raise
            time.sleep(_STORE_RETRY_S)


def _write(holding: Holding, ending: Ending) -> Job:
    match ending:
        case Finished(outcome):
            return holding.finish(outcome)
        case Broken(failure):
            return holding.set_back(failure)
        case Cancelled():
            return holding.cancel()
        case HandedBack():
            return holding.hand_back()

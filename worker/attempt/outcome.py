"""Read the result of an attempt from the files of its ranks, and record it in the job."""

import time
from datetime import timedelta

from pydantic import ValidationError

from exporter.errors import AttemptFailed, AttemptTimedOut
from exporter.outcome import ExportOutcome, Failure
from jobs.errors import StoreUnavailable
from jobs.lease.leases import Holding
from jobs.model import Job
from processes.guarded_process import GuardedProcess
from processes.log_end import read_log_end
from worker.attempt.attempt_result import AttemptResult, Cancelled, Finished, HandedBack, NoOutcome
from worker.attempt.failed_rank import describe_failed_rank
from worker.attempt.workspace import Workspace

_LOG_LINES = 20
_A_RANK_FAILED = 1  # exit status of `worker.attempt.ranks`
_STORE_PATIENCE_S = 300.0
_STORE_RETRY_S = 1.0


def read_result(workspace: Workspace, process: GuardedProcess) -> AttemptResult:
    """Return the result of an attempt whose processes have exited by themselves."""
    status = process.exit_status()
    if status != 0:
        if (failure := workspace.read_rank_failure()) is not None:
            return Finished(ExportOutcome(failure=failure))
        description = describe_failed_rank(read_log_end(process.log)) if status == _A_RANK_FAILED else None
        return NoOutcome(
            Failure.of(
                _rank_failure(description)
                if description
                else _process_failure(f"ended with exit status {status}", process)
            )
        )
    try:
        outcome = workspace.read_outcome()
    except ValidationError as error:
        return NoOutcome(Failure.of(_process_failure(f"wrote an unreadable outcome ({error})", process)))
    if outcome is None:
        return NoOutcome(Failure.of(_process_failure("ended without an outcome", process)))
    return Finished(outcome)


def _rank_failure(description: str) -> AttemptFailed:
    return AttemptFailed(description, hint="a rank killed by SIGKILL most often ran out of memory")


def _process_failure(how: str, process: GuardedProcess) -> AttemptFailed:
    return AttemptFailed(
        f"the attempt's processes {how}; the log ends:\n{process.last_lines(_LOG_LINES)}",
        hint="the log's last lines name the cause; status 137 often means too little memory",
    )


def timeout_error(limit: timedelta, process: GuardedProcess) -> AttemptTimedOut:
    """Return the error of an attempt that was ended because it exceeded `limit`."""
    return AttemptTimedOut(
        f"the attempt took longer than {limit} and was ended; the log ends:\n"
        f"{process.last_lines(_LOG_LINES)}",
        hint="raise SLIPWAY_ATTEMPT_TIME_LIMIT (seconds), or look in the log for what hangs",
    )


def record_result(holding: Holding, result: AttemptResult) -> Job:
    """Record the result in the job; wait up to five minutes for a store that is away.

    A job that is handed back is not waited for: the sweep returns it to the queue once its lease expires.
    """
    deadline = time.monotonic() + _STORE_PATIENCE_S
    while True:
        try:
            return _record_once(holding, result)
        except StoreUnavailable:
            if isinstance(result, HandedBack) or time.monotonic() > deadline:
                raise
            time.sleep(_STORE_RETRY_S)


def _record_once(holding: Holding, result: AttemptResult) -> Job:
    match result:
        case Finished(outcome):
            return holding.finish(outcome)
        case NoOutcome(failure):
            return holding.set_back(failure)
        case Cancelled():
            return holding.cancel()
        case HandedBack():
            return holding.hand_back()

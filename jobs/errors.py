"""What can go wrong with a job, as a branch of the exporter's tree.

ExportError
└── JobError
    ├── JobNotFound       no job has this id
    ├── JobFinished       a finished job cannot be cancelled
    ├── IllegalMove       the table of moves does not have this move
    ├── LeaseLost         the lease has expired or another attempt holds the job
    └── StoreUnavailable  the job store cannot be reached, or refuses (retryable)
"""

from exporter.errors import ExportError


class JobError(ExportError):
    """Something about a job, not about its export."""

    code = "job_error"
    advice = "look at the job again"


class JobNotFound(JobError):
    """No job has this id."""

    code = "job_not_found"
    advice = "list the jobs with GET /exports"

    def __init__(self, job_id: str) -> None:
        """Name the id."""
        super().__init__(f"there is no job {job_id}")


class JobFinished(JobError):
    """A finished job cannot be cancelled."""

    code = "job_finished"
    advice = "there is nothing to do: it has ended"


class IllegalMove(JobError):
    """The table of moves does not have this move."""

    code = "illegal_move"
    advice = "look at the job again: its state has changed"


class LeaseLost(JobError):
    """The lease has expired or another attempt holds the job."""

    code = "lease_lost"
    advice = "there is nothing to do: the job goes on elsewhere"


class StoreUnavailable(JobError):
    """The job store cannot be reached, or refuses: out of memory, read-only."""

    code = "store_unavailable"
    advice = "check that Redis runs at SLIPWAY_REDIS_URL; the request can be repeated"
    retryable = True

    def __init__(self, cause: BaseException) -> None:
        """Name the cause; the address may hold a password and is left out."""
        super().__init__(f"the job store cannot be reached or refuses: {type(cause).__name__}")

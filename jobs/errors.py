"""What can go wrong with a job, as a branch of the exporter's tree.

ExportError
└── JobError
    ├── JobNotFound       no job has this id
    ├── JobFinished       a finished job cannot be cancelled
    ├── IllegalMove       the table of moves does not have this move
    ├── LeaseLost         the lease has expired or another attempt holds the job
    └── StoreUnavailable  the job store cannot be reached (retryable)
"""

from exporter.errors import ExportError


class JobError(ExportError):
    """Something about a job, not about its export."""

    code = "job_error"


class JobNotFound(JobError):
    """No job has this id."""

    code = "job_not_found"

    def __init__(self, job_id: str) -> None:
        """Name the id."""
        super().__init__(f"there is no job {job_id}", hint="list the jobs with GET /exports")


class JobFinished(JobError):
    """A finished job cannot be cancelled."""

    code = "job_finished"


class IllegalMove(JobError):
    """The table of moves does not have this move."""

    code = "illegal_move"


class LeaseLost(JobError):
    """The lease has expired or another attempt holds the job."""

    code = "lease_lost"


class StoreUnavailable(JobError):
    """The job store cannot be reached."""

    code = "store_unavailable"
    retryable = True

    def __init__(self, cause: BaseException) -> None:
        """Name the cause; the address may hold a password and is left out."""
        super().__init__(
            f"the job store cannot be reached: {type(cause).__name__}",
            hint="check that Redis runs at SLIPWAY_REDIS_URL; the request can be repeated",
        )

"""What can go wrong with a job, as a branch of the exporter's tree.

ExportError
└── JobError
    ├── JobNotFound       no job has this id
    ├── JobFinished       a finished job cannot be cancelled
    ├── JobNotFinished    a job that may still run cannot be deleted
    ├── JobNotRetryable   no tower of the job has failed
    ├── QuotaExceeded     the caller has as many jobs as it may (retryable)
    ├── KeyReused         an idempotency key came with another request before
    ├── KeyInFlight       the request with this idempotency key is still being answered (retryable)
    ├── NoArtifact        the job has published nothing of the kind
    ├── ModelNotFound     no successful export carries this model's name
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


class JobNotFinished(JobError):
    """A job that may still run cannot be deleted."""

    code = "job_not_finished"


class JobNotRetryable(JobError):
    """No tower of the job has failed."""

    code = "job_not_retryable"


class QuotaExceeded(JobError):
    """The caller has as many jobs as it may have."""

    code = "quota_exceeded"
    retryable = True

    def __init__(self, owner: str, limit: int, state: str) -> None:
        """Name the limit that was met."""
        super().__init__(
            f"{owner} has {limit} {state} jobs, and may have no more",
            hint="wait for some to end, or cancel them; the limits stand with the API key",
        )


class KeyReused(JobError):
    """An idempotency key came with another request before."""

    code = "idempotency_key_reused"

    def __init__(self, key: str) -> None:
        """Name the key."""
        super().__init__(
            f"Idempotency-Key {key} was used before, for another request",
            hint="draw a new key for every new request",
            where="Idempotency-Key",
        )


class KeyInFlight(JobError):
    """The request with this idempotency key is still being answered."""

    code = "idempotency_key_in_flight"
    retryable = True

    def __init__(self, key: str) -> None:
        """Name the key."""
        super().__init__(
            f"the request with Idempotency-Key {key} is still being answered",
            hint="repeat it in a moment",
            where="Idempotency-Key",
        )


class NoArtifact(JobError):
    """The job has published nothing of the kind."""

    code = "no_artifact"


class ModelNotFound(JobError):
    """No successful export carries this model's name."""

    code = "model_not_found"

    def __init__(self, name: str, what: str = "successful export") -> None:
        """Name the model, and what of it there is not."""
        super().__init__(
            f"there is no {what} of a model {name}", hint="name the model in `model` when posting an export"
        )


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

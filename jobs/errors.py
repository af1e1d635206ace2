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
    ├── NoBundle          of this job or tower no failure's bundle is kept
    ├── ModelNotFound     no successful export carries this model's name
    ├── IllegalMove       the table of moves does not have this move
    ├── LeaseLost         the lease has expired or another attempt holds the job
    ├── RecordTooNew      a newer program wrote the job's record (retryable)
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


class JobNotFinished(JobError):
    """A job that may still run cannot be deleted."""

    code = "job_not_finished"
    advice = "cancel it, and delete it once it has ended"


class JobNotRetryable(JobError):
    """No tower of the job has failed."""

    code = "job_not_retryable"
    advice = "post a new export; `retry` is for jobs that failed, wholly or in part"


class QuotaExceeded(JobError):
    """The caller has as many jobs as it may have."""

    code = "quota_exceeded"
    advice = "wait for some to end, or cancel them"
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
    advice = "draw a new key for every new request"

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
    advice = "repeat it in a moment"
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
    advice = "see the job's towers for what it published, and why not"


class NoBundle(JobError):
    """Of this job or tower no failure's bundle is kept."""

    code = "no_bundle"
    advice = "a failure names its bundle in `bundle_url`; it is kept for a week"


class ModelNotFound(JobError):
    """No successful export carries this model's name."""

    code = "model_not_found"
    advice = "name the model in `model` when posting an export"

    def __init__(self, name: str, what: str = "successful export") -> None:
        """Name the model, and what of it there is not."""
        super().__init__(
            f"there is no {what} of a model {name}", hint="name the model in `model` when posting an export"
        )


class IllegalMove(JobError):
    """The table of moves does not have this move."""

    code = "illegal_move"
    advice = "look at the job again: its state has changed"


class LeaseLost(JobError):
    """The lease has expired or another attempt holds the job."""

    code = "lease_lost"
    advice = "there is nothing to do: the job goes on elsewhere"


class RecordTooNew(JobError):
    """A newer program wrote the job's record."""

    code = "record_too_new"
    retryable = True
    advice = "finish the upgrade: programs of the newer version read it"

    def __init__(self, job_id: str, version: object) -> None:
        """Name the job and the layout of its record."""
        super().__init__(f"the record of job {job_id} has a newer layout than this program reads: {version}")


class StoreUnavailable(JobError):
    """The job store cannot be reached, or refuses: out of memory, read-only."""

    code = "store_unavailable"
    advice = "check that Redis runs at SLIPWAY_REDIS_URL; the request can be repeated"
    retryable = True

    def __init__(self, cause: BaseException) -> None:
        """Name the cause; the address may hold a password and is left out."""
        super().__init__(f"the job store cannot be reached or refuses: {type(cause).__name__}")

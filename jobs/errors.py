"""Errors about jobs, as a branch of the exporter's tree of errors.

ExportError
└── JobError
    ├── JobNotFound       no job has this id
    ├── JobFinished       a finished job cannot be cancelled
    ├── JobNotFinished    a job that may still run cannot be deleted
    ├── JobNotRetryable   no tower of the job has failed
    ├── QuotaExceeded     the caller has as many jobs as it may have (retryable)
    ├── ConfigsTooLarge   the configs of the caller's jobs would take more bytes than they may
    ├── ConfigNotFound    the text of the job's config is not stored
    ├── KeyReused         the idempotency key was used for another request
    ├── KeyInFlight       the request with this idempotency key is still being answered (retryable)
    ├── NoArtifact        the job has published no such artifact
    ├── TorchUnserved     no worker alive has the release of torch that the job names
    ├── BaselineNotUsable  the baseline of a release gate is no successful job that the caller sees
    ├── ReleaseNotBlessed  the release gate objects to the release that is to be promoted
    ├── NoBundle          no bundle of this job or tower is stored
    ├── ModelNotFound     no successful export has this model's name
    ├── IllegalMove       the table of moves does not have this move
    ├── LeaseLost         the lease has expired, or another attempt holds the job
    ├── RecordUnreadable  the job's record is damaged
    │   └── RecordTooNew  a newer program wrote the record (retryable)
    └── StoreUnavailable  the job store cannot be reached, or refuses (retryable)
"""

from collections.abc import Collection

from exporter.errors import ExportError


class JobError(ExportError):
    """An error about a job, not about its export."""

    code = "job_error"
    advice = "get the job's current state"


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
    advice = "nothing to do: the job has ended"


class JobNotFinished(JobError):
    """A job that may still run cannot be deleted."""

    code = "job_not_finished"
    advice = "cancel the job, and delete it once it has ended"


class JobNotRetryable(JobError):
    """No tower of the job has failed."""

    code = "job_not_retryable"
    advice = "post a new export; `retry` is for jobs that failed, wholly or in part"


class QuotaExceeded(JobError):
    """The caller has as many jobs as it may have."""

    code = "quota_exceeded"
    advice = "wait until some have ended, or cancel them"
    retryable = True

    def __init__(self, owner: str, limit: int, state: str) -> None:
        """Name the owner and the limit."""
        super().__init__(
            f"{owner} has {limit} {state} jobs, and may have no more",
            hint="wait until some have ended, or cancel them; the limits are set with the API key",
        )


class ConfigsTooLarge(JobError):
    """The configs of the caller's jobs would take more bytes of the job store than they may."""

    code = "configs_too_large"
    advice = "delete jobs that have ended, or ask the operator to raise SLIPWAY_MAX_CONFIG_BYTES_PER_OWNER"

    def __init__(self, owner: str, size: int, limit: int) -> None:
        """Name the owner, the size of the new config and the limit."""
        super().__init__(
            f"with this config, of {size} bytes, the configs of {owner}'s jobs would take more than the "
            f"{limit} bytes that they may",
            hint="delete jobs that have ended, or ask the operator to raise "
            "SLIPWAY_MAX_CONFIG_BYTES_PER_OWNER; equal configs count once, and `config_uri` does not help, "
            "because every job keeps the text of its config",
            where="config",
        )


class ConfigNotFound(JobError):
    """The text of the job's config is not stored."""

    code = "config_not_found"
    advice = "post the export again: the job store has lost the config"

    def __init__(self, job_id: str, sha256: str) -> None:
        """Name the job and the digest of its config."""
        super().__init__(f"the config of job {job_id}, with sha256 {sha256}, is not in the job store")


class KeyReused(JobError):
    """The idempotency key was used for another request."""

    code = "idempotency_key_reused"
    advice = "use a new key for every new request"

    def __init__(self, key: str) -> None:
        """Name the key."""
        super().__init__(
            f"Idempotency-Key {key} was used before, for another request",
            hint="use a new key for every new request",
            where="Idempotency-Key",
        )


class KeyInFlight(JobError):
    """The request with this idempotency key is still being answered."""

    code = "idempotency_key_in_flight"
    advice = "repeat the request in a moment"
    retryable = True

    def __init__(self, key: str) -> None:
        """Name the key."""
        super().__init__(
            f"the request with Idempotency-Key {key} is still being answered",
            hint="repeat the request in a moment",
            where="Idempotency-Key",
        )


class NoArtifact(JobError):
    """The job has published no such artifact."""

    code = "no_artifact"
    advice = "see the job's towers for what was published, and for the failures of the others"


class TorchUnserved(JobError):
    """No worker alive has the release of torch that the job names, and the operator has not promised one."""

    code = "torch_unserved"
    advice = "name a release that a worker has, or leave `torch` out"

    def __init__(self, release: str, served: Collection[str]) -> None:
        """Name the release, and those that workers have."""
        workers = f"have {', '.join(sorted(served))}" if served else "have none that jobs may name"
        super().__init__(
            f"no worker has torch {release}; those alive {workers}",
            hint="name one of these or leave `torch` out; or have the operator start a worker with it, or "
            "list it in SLIPWAY_TORCH_RELEASES so that jobs wait for one",
            where="torch",
        )


class BaselineNotUsable(JobError):
    """The baseline that a release gate names is no successful job that the caller sees."""

    code = "baseline_not_usable"
    advice = "name a job that has succeeded, or `promoted`, the model's promoted release"

    def __init__(self, why: str) -> None:
        """Say why; a job that the caller does not see is as one that does not exist."""
        super().__init__(f"release_gate.baseline: {why}", where="release_gate.baseline")


class ReleaseNotBlessed(JobError):
    """The release gate objects to the release that is to be promoted, or could not judge it."""

    code = "release_not_blessed"
    advice = "export a better model, or promote with `force`, which is written to the audit log"

    def __init__(self, model: str, job_id: str, objections: str) -> None:
        """Name the release, and the figures that stand against it."""
        super().__init__(
            f"the release of model {model} by job {job_id} is not blessed: {objections}", where="job_id"
        )


class NoBundle(JobError):
    """No bundle of this job or tower is stored."""

    code = "no_bundle"
    advice = "a failure names its bundle in `bundle_url`; it is kept for a week"


class ModelNotFound(JobError):
    """No successful export has this model's name."""

    code = "model_not_found"
    advice = "name the model in `model` when posting an export"

    def __init__(self, name: str, what: str = "successful export") -> None:
        """Name the model and what was not found."""
        super().__init__(
            f"there is no {what} of a model {name}", hint="name the model in `model` when posting an export"
        )


class IllegalMove(JobError):
    """The table of moves does not have this move."""

    code = "illegal_move"
    advice = "get the job again: its state has changed"


class LeaseLost(JobError):
    """The lease has expired, or another attempt holds the job."""

    code = "lease_lost"
    advice = "nothing to do: another worker holds the job"


class RecordUnreadable(JobError):
    """The job's record is damaged: something other than Slipway has written to the job store."""

    code = "record_unreadable"
    advice = "ask the operator to look at the record in Redis; the job cannot go on"

    def __init__(self, job_id: str, why: str = "is damaged") -> None:
        """Name the job; the record's beginning is in the log."""
        super().__init__(f"the record of job {job_id} {why}")


class RecordTooNew(RecordUnreadable):
    """A newer program wrote the job's record."""

    code = "record_too_new"
    retryable = True
    advice = "finish the upgrade: programs of the newer version can read it"

    def __init__(self, job_id: str, version: object) -> None:
        """Name the job and the layout of its record."""
        super().__init__(job_id, f"has a newer layout than this program reads: {version}")


class StoreUnavailable(JobError):
    """The job store cannot be reached, or refuses because it is out of memory or read-only."""

    code = "store_unavailable"
    advice = "check that Redis runs at SLIPWAY_REDIS_URL; the request can be repeated"
    retryable = True

    def __init__(self, cause: BaseException) -> None:
        """Name the cause, without the address, which may hold a password."""
        super().__init__(f"the job store cannot be reached or refuses: {type(cause).__name__}")

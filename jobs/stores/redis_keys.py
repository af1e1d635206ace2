"""The keys under which Redis holds the jobs, and what is found from them."""

from jobs.model import Job

JOB_KEY = "slipway:job:"  # + id: hash of spec, record, revision, targets, family
INDEX_KEY = "slipway:jobs:"  # + state, or "all": sorted set of ids, in the order of the ids themselves
OWNER_KEY = "slipway:owner:"  # + state:owner: set of ids
CONFIG_KEY = "slipway:config:"  # + sha256: hash of text, and jobs, the number of jobs that use it
OWNED_CONFIGS_KEY = "slipway:configs:"  # + owner: hash of bytes, and the number of the owner's jobs by sha256
LEASES_KEY = "slipway:leases"  # sorted set: id by the Unix second its lease ends
CONTENT_KEY = "slipway:content:"  # + content key: id of the latest successful job
RELEASES_KEY = "slipway:releases:"  # + model: sorted set of the ids of its successful jobs
MODELS_KEY = "slipway:models"  # sorted set of models that have any
OUTBOX_KEY = "slipway:outbox"  # list: events for callers, oldest first (see jobs.hooks.redis_outbox)
ALL = "all"  # the index of jobs in any state


def job_keys(job: Job) -> list[str]:
    """Return the keys of a job, of both its indexes, and of its owner's jobs in its state."""
    return [JOB_KEY + job.id, INDEX_KEY + job.state, INDEX_KEY + ALL, owner_key(job)]


def config_keys(job: Job) -> list[str]:
    """Return the keys of the text of a job's config, and of its owner's configs."""
    return [CONFIG_KEY + job.spec.config_sha256, OWNED_CONFIGS_KEY + job.owner]


def content_key(job: Job) -> str:
    """Return the key of the latest successful job with the same content."""
    return CONTENT_KEY + (job.content_key or "")


def owner_key(job: Job) -> str:
    """Return the key of the owner's jobs in the job's state."""
    return f"{OWNER_KEY}{job.state}:{job.owner}"

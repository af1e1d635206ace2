"""The call of the script that adds a job: its keys and arguments, and what its reply means.

It is the same for a client that waits in a thread and for one that waits on an event loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.errors import ConfigNotFound, ConfigsTooLarge, QuotaExceeded
from jobs.events import make_outbox_entries
from jobs.ids import JobId
from jobs.model import Job
from jobs.queue import Message
from jobs.stores.job_store import NewJob
from jobs.stores.record import write_record, write_spec
from jobs.stores.redis_keys import OUTBOX_KEY, config_keys, content_key, job_keys
from jobs.stores.redis_scripts import CONFIG_MISSING, CONFIGS_FULL, EXISTS, QUEUE_FULL


@dataclass(frozen=True)
class AddCall:
    """The call that adds a job and sends its messages."""

    new: NewJob
    messages: Sequence[Message]

    def write_keys(self) -> list[str]:
        job = self.new.job
        keys = [*job_keys(job), OUTBOX_KEY, *config_keys(job), content_key(job)]
        return [*keys, *(message.key for message in self.messages)]

    def write_args(self) -> list[str | int]:
        new, job, config = self.new, self.new.job, self.new.config
        return [
            job.id,
            "" if new.max_queued is None else new.max_queued,
            write_spec(job.spec),
            write_record(job),
            str(job.revision),
            list_routes(job),
            job.spec.config_sha256,
            job.spec.config_bytes,
            "" if new.max_config_bytes is None else new.max_config_bytes,
            "" if config is None else "1",
            config or "",
            "1" if new.unless_made and job.content_key else "",
            job.family or "",
            len(self.messages),
            *(message.text for message in self.messages),
            *serialize_events(None, job),
        ]

    def read_reply(self, done: object) -> JobId | None:
        """Return None if the job was added, or the id of the job that is there instead; raise a refusal."""
        new, job = self.new, self.new.job
        if done == QUEUE_FULL and new.max_queued is not None:
            raise QuotaExceeded(job.owner, new.max_queued, job.state)
        if done == CONFIG_MISSING:
            raise ConfigNotFound(job.id, job.spec.config_sha256)
        if done == CONFIGS_FULL and new.max_config_bytes is not None:
            raise ConfigsTooLarge(job.owner, job.spec.config_bytes, new.max_config_bytes)
        if done == EXISTS:
            return job.id
        return JobId(done) if isinstance(done, str) else None


def list_routes(job: Job) -> str:
    """Return the routes under which a job counts, as its hash holds them."""
    return ",".join(job.busy_routes)


def serialize_events(old: Job | None, new: Job) -> list[str]:
    """Return the entries of the outbox for the step from `old` to `new`."""
    return [entry.model_dump_json() for entry in make_outbox_entries(old, new)]

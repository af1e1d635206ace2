"""The job store in Redis: one hash per job, one sorted set per state, and one of the leases' ends."""

import logging
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

import redis
from pydantic import TypeAdapter
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from jobs.errors import (
    ConfigNotFound,
    JobNotFound,
    QuotaExceeded,
    RecordTooNew,
    RecordUnreadable,
    StoreUnavailable,
)
from jobs.ids import JobId
from jobs.model import Job, JobState
from jobs.queue import Message
from jobs.route import Route
from jobs.spec import describe_config
from jobs.stores.job_store import JobPage, NewJob
from jobs.stores.malformed import MalformedData
from jobs.stores.record import has_config_text, read_config, read_record, write_record
from jobs.stores.redis_adding import AddCall, list_routes, serialize_events
from jobs.stores.redis_keys import (
    ALL,
    CONFIG_KEY,
    INDEX_KEY,
    JOB_KEY,
    LEASES_KEY,
    MODELS_KEY,
    OUTBOX_KEY,
    RELEASES_KEY,
    config_keys,
    content_key,
    job_keys,
    owner_key,
)
from jobs.stores.redis_scripts import ADD, QUEUE_FULL, REMOVE, REPLACE

log = logging.getLogger(__name__)

_SCORED = TypeAdapter(list[tuple[JobId, float]])
_TIMEOUT_S = 5.0
_TARGETS = re.compile(r"[a-z0-9_@.,]{0,200}")
_READ_BYTES = 1 << 20  # of records that are read from Redis together
_PAGE_BYTES = 8 << 20  # of records on one page
_OLDEST = 20  # of a state, of which the oldest readable one is looked for

RedisClient = redis.Redis  # for programs that only pass it on


class ClientOptions(TypedDict):
    """The options of a client for Redis."""

    decode_responses: bool
    encoding_errors: str
    socket_timeout: float
    socket_connect_timeout: float
    health_check_interval: int


OPTIONS = ClientOptions(
    decode_responses=True,
    encoding_errors="replace",  # bytes that are no text make their record unreadable, and nothing else
    socket_timeout=_TIMEOUT_S,
    socket_connect_timeout=_TIMEOUT_S,
    health_check_interval=30,
)
PAUSES, TRIES_AGAIN = ExponentialBackoff(cap=0.2, base=0.05), 2


def connect(url: str) -> redis.Redis:
    """Return a client that fails within seconds if Redis is away."""
    return redis.Redis.from_url(url, **OPTIONS, retry=Retry(PAUSES, TRIES_AGAIN))


@contextmanager
def translate_redis_errors() -> Iterator[None]:
    """Raise StoreUnavailable for a Redis that is away, out of memory or read-only."""
    try:
        yield
    except redis.RedisError as error:
        raise StoreUnavailable(error) from error


class RedisJobStore:
    """Jobs in Redis, by Redis's clock."""

    def __init__(self, client: redis.Redis) -> None:
        """Use `client` (see `connect`), which the caller closes."""
        self._redis = client
        self._add = client.register_script(ADD)
        self._replace = client.register_script(REPLACE)
        self._remove = client.register_script(REMOVE)
        self._malformed = MalformedData(client)

    def now(self) -> datetime:
        with translate_redis_errors():
            seconds, microseconds = self._redis.time()
        return datetime.fromtimestamp(seconds + microseconds / 1e6, UTC)

    def add(
        self,
        job: Job,
        config: str | None,
        *,
        max_queued: int | None = None,
        max_config_bytes: int | None = None,
        messages: Sequence[Message] = (),
        unless_made: bool = False,
    ) -> JobId | None:
        new = NewJob(
            job=job,
            config=config,
            max_queued=max_queued,
            max_config_bytes=max_config_bytes,
            unless_made=unless_made,
        )
        call = AddCall(new, messages)
        with translate_redis_errors():
            done = self._add(keys=call.write_keys(), args=call.write_args())
        return call.read_reply(done)

    def get(self, job_id: JobId) -> Job:
        [found] = self._fetch([job_id])
        if found is None:
            raise JobNotFound(job_id)
        return self._parse(job_id, found)

    def config_of(self, job: Job) -> str:
        with translate_redis_errors():
            if has_config_text(job):
                spec = self._redis.hget(JOB_KEY + job.id, "spec")
                config = None if spec is None else read_config(str(spec))
            else:
                text = self._redis.hget(CONFIG_KEY + job.spec.config_sha256, "text")
                config = None if text is None else str(text)
        if config is None:
            self.revision(job.id)  # raises JobNotFound if the job was removed, and its config with it
        if config is None or describe_config(config)["config_sha256"] != job.spec.config_sha256:
            raise ConfigNotFound(job.id, job.spec.config_sha256)
        return config

    def replace(self, old: Job, new: Job) -> bool:
        begins = new.state is JobState.RUNNING and old.state is not JobState.RUNNING
        limit = new.running_limit if begins else None
        succeeded = new.state is JobState.SUCCEEDED
        keys = [
            JOB_KEY + old.id,
            INDEX_KEY + old.state,
            INDEX_KEY + new.state,
            owner_key(old),
            owner_key(new),
            LEASES_KEY,
            OUTBOX_KEY,
            content_key(new),
            RELEASES_KEY + (new.model or ""),
            MODELS_KEY,
        ]
        args = [
            old.id,
            str(old.revision),
            str(new.revision),
            write_record(new),
            new.lease.until.timestamp() if new.lease else "",
            "" if limit is None else limit,
            "1" if succeeded and new.content_key else "",
            (new.model or "") if succeeded else "",
            list_routes(new),
            *serialize_events(old, new),
        ]
        with translate_redis_errors():
            done = self._replace(keys=keys, args=args)
        if done == QUEUE_FULL and limit is not None:
            raise QuotaExceeded(new.owner, limit, new.state)
        return bool(done)

    def remove(self, job: Job) -> bool:
        with translate_redis_errors():
            keys = [*job_keys(job), RELEASES_KEY + (job.model or ""), content_key(job)]
            digest = "" if has_config_text(job) else job.spec.config_sha256
            args: list[str | int] = [job.id, str(job.revision), digest, job.spec.config_bytes]
            return bool(self._remove(keys=[*keys, *config_keys(job)], args=args))

    def revision(self, job_id: JobId) -> int:
        with translate_redis_errors():
            found = self._redis.hget(JOB_KEY + job_id, "revision")
        if found is None:
            raise JobNotFound(job_id)
        if not str(found).isdecimal():
            raise RecordUnreadable(job_id)
        return int(found)

    def count(self, state: JobState) -> int:
        with translate_redis_errors():
            return int(self._redis.zcard(INDEX_KEY + state))

    def count_by_route(self, state: JobState) -> Mapping[Route, int]:
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            ids = [JobId(str(each)) for each in self._redis.zrange(INDEX_KEY + state, 0, -1)]
            for job_id in ids:
                pipe.hget(JOB_KEY + job_id, "targets")
            found = dict(zip(ids, pipe.execute(raise_on_error=False), strict=True))
        # Jobs whose records an older version wrote.
        old = self._read([job_id for job_id, targets in found.items() if targets is None])
        counted = Counter(each for job, _ in old for each in job.busy_routes)
        known = [targets for targets in found.values() if targets and _TARGETS.fullmatch(str(targets))]
        return counted + Counter(each for targets in known for each in targets.split(","))

    def oldest(self, state: JobState) -> Job | None:
        with translate_redis_errors():
            ids = self._redis.zrange(INDEX_KEY + state, 0, _OLDEST - 1)
        return next((job for job, _ in self._read([JobId(str(each)) for each in ids])), None)

    def page(
        self,
        *,
        limit: int,
        state: JobState | None = None,
        before: JobId | None = None,
        skip: Container[JobId] = (),
    ) -> JobPage:
        newest = f"({before}" if before else "+"
        with translate_redis_errors():
            found = self._redis.zrevrangebylex(INDEX_KEY + (state or ALL), newest, "-", 0, limit + 1)
        ids = [JobId(str(each)) for each in found]
        shown: list[Job] = []
        size, end = 0, ids[limit - 1] if len(ids) > limit else None
        for job, length in self._read([each for each in ids[:limit] if each not in skip]):
            # A job may have left the state since the index was read; it must not be listed under it.
            if state in (None, job.state):
                shown.append(job)
            size += length
            if size >= _PAGE_BYTES and job.id != ids[-1]:
                end = job.id
                break
        return JobPage(tuple(shown), end)

    def leases(self) -> Mapping[JobId, datetime]:
        with translate_redis_errors():
            found = _SCORED.validate_python(self._redis.zrange(LEASES_KEY, 0, -1, withscores=True))
        leases = {}
        for job_id, end in found:
            try:
                leases[job_id] = datetime.fromtimestamp(end, UTC)
            except (ValueError, OverflowError, OSError) as error:
                self._malformed.skip("lease", f"{LEASES_KEY} {job_id}", end, error)
        return leases

    def _read(self, ids: Sequence[JobId]) -> Iterator[tuple[Job, int]]:
        """Yield the jobs that this program can read, each with the length of its record.

        Only a few large records are in memory at a time.
        """
        for group in self._split(ids):
            for job_id, found in zip(group, self._fetch(group), strict=True):
                try:
                    if found is not None:
                        job = self._parse(job_id, found)
                        text = job.spec.config_bytes if has_config_text(job) else 0
                        yield job, len(found.record) + len(found.spec) - text
                except RecordTooNew as error:
                    log.info("record_too_new", extra={"reason": error.message})
                except RecordUnreadable:  # noted already
                    continue

    def _split(self, ids: Sequence[JobId]) -> Iterator[Sequence[JobId]]:
        """Divide the ids so that the records of each part can be read together."""
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hstrlen(JOB_KEY + job_id, "spec")
                pipe.hstrlen(JOB_KEY + job_id, "record")
            lengths = pipe.execute(raise_on_error=False)
        group: list[JobId] = []
        size = 0
        for job_id, *parts in zip(ids, lengths[::2], lengths[1::2], strict=True):
            group.append(job_id)
            size += sum(part for part in parts if isinstance(part, int))
            if size >= _READ_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group

    def _fetch(self, ids: Iterable[JobId]) -> "list[_Stored | None]":
        """Return the stored record, spec and family of each job; None where there is none."""
        with translate_redis_errors(), self._redis.pipeline(transaction=False) as pipe:
            for job_id in ids:
                pipe.hmget(JOB_KEY + job_id, ["record", "spec", "family"])
            rows = pipe.execute(raise_on_error=False)
        found: list[_Stored | None] = []
        for row in rows:
            if isinstance(row, redis.ResponseError):  # no hash, or no text in it
                found.append(_Stored("", "", ""))
            elif isinstance(row, Exception):
                raise StoreUnavailable(row) from row
            else:
                record, spec, family = row
                absent = record is None and spec is None
                found.append(None if absent else _Stored(record or "", spec or "", family or ""))
        return found

    def _parse(self, job_id: JobId, found: "_Stored") -> Job:
        """Return the job; note a damaged record, and raise RecordUnreadable."""
        try:
            job = read_record(job_id, found.record, found.spec)
        except RecordTooNew:
            raise
        except RecordUnreadable as error:
            self._malformed.skip("record", JOB_KEY + job_id, found.record, error)
            raise
        family = found.family or job.spec.family
        return job.model_copy(update={"family": family}) if family else job


@dataclass(frozen=True)
class _Stored:
    record: str
    spec: str
    family: str

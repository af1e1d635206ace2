"""The jobs that a caller may see: those whose URIs all lie below the prefixes that bind the caller.

A caller sees what it could have submitted itself. Any other job is as one that does not exist, in every
operation that is built on a store.
"""

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from exporter.errors import InvalidSpec
from exporter.storage.uris import NamedUri, UriRules, uris_of
from jobs.errors import JobNotFound, RecordTooNew, RecordUnreadable
from jobs.ids import JobId, last_id_beside
from jobs.model import Job, JobState
from jobs.queue import Message
from jobs.stores.job_store import JobPage, JobRecords

MOST_READ = 1000  # records looked through for one page
_FIRST_READ = 50  # of these together; then twice as many each time
_MOST_HIDDEN, _MOST_RULES = 10_000, 32  # that are remembered


class Numbered(Protocol):
    """A record whose id sorts by time, newest last."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Numbered)
# Reads so many records older than an id, newest first, and the id that the next ones are older than.
ReadPage = Callable[[int, str | None], tuple[Sequence[T], str | None]]


def find_visible(
    read: ReadPage[T], shows: Callable[[T], bool], *, limit: int, before: str | None
) -> tuple[tuple[T, ...], str | None]:
    """Return up to `limit` records that are shown, among the next MOST_READ, and where to go on."""
    found: list[T] = []
    at, count, left = before, _FIRST_READ, MOST_READ
    while left > 0:
        records, at = read(min(count, left), at)
        count, left = 2 * count, left - count
        for record in filter(shows, records):
            found.append(record)
            if len(found) == limit:
                return tuple(found), None if at is None and record is records[-1] else record.id
        if at is None:
            return tuple(found), None
    return _cut(found, JobId(str(at)), before)


def _cut(found: list[T], last_read: JobId, before: str | None) -> tuple[tuple[T, ...], str | None]:
    """Go on at a time and not at the record that was read last, whose id the caller may not know.

    Records of that millisecond are left to the next page.
    """
    at = last_id_beside(last_read)
    if before is not None and at >= before:  # all of them were made in one millisecond
        return tuple(found), last_read
    return tuple(record for record in found if record.id > at), at


class HiddenJobs:
    """The jobs that callers were found not to see, by the rules of these; lists do not read them again.

    A job's URIs never change. Only a link on this machine may, and then a list goes on without the job.
    """

    def __init__(self) -> None:
        """Start without any."""
        self._by_rules: dict[UriRules, set[JobId]] = {}
        self._lock = threading.Lock()

    def within(self, rules: UriRules) -> set[JobId]:
        """Return the jobs hidden by the rules, to be added to; those of few rules are remembered."""
        with self._lock:
            if rules not in self._by_rules and len(self._by_rules) >= _MOST_RULES:
                del self._by_rules[next(iter(self._by_rules))]
            return self._by_rules.setdefault(rules, set())


class VisibleJobs:
    """A job store as it looks to a caller who is bound by `rules`."""

    def __init__(self, store: JobRecords, rules: UriRules, hidden: set[JobId] | None = None) -> None:
        """Show the jobs of `store` that lie within the rules; pages skip `hidden` ones, and add to them."""
        self._store = store
        self._hidden = set() if hidden is None else hidden
        self._rules = rules
        self._allowed: dict[NamedUri, bool] = {}  # jobs share URIs, and following links takes time
        self._seen: set[JobId] = set()  # the URIs of a job never change

    def now(self) -> datetime:
        return self._store.now()

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
        return self._store.add(
            job,
            config,
            max_queued=max_queued,
            max_config_bytes=max_config_bytes,
            messages=messages,
            unless_made=unless_made,
        )

    def get(self, job_id: JobId) -> Job:
        try:
            job = self._store.get(job_id)
        except RecordTooNew:  # as long as an upgrade takes; 404 would end what waits for the job
            raise
        except RecordUnreadable:  # it does not say whose it is
            raise JobNotFound(job_id) from None
        if not self.shows(job):
            raise JobNotFound(job_id)
        return job

    def config_of(self, job: Job) -> str:
        return self._store.config_of(job)

    def replace(self, old: Job, new: Job) -> bool:
        return self._store.replace(old, new)

    def remove(self, job: Job) -> bool:
        return self._store.remove(job)

    def revision(self, job_id: JobId) -> int:
        if job_id not in self._seen:
            self.get(job_id)
        return self._store.revision(job_id)

    def page(
        self,
        *,
        limit: int,
        state: JobState | None = None,
        before: JobId | None = None,
        skip: Container[JobId] = (),
    ) -> JobPage:
        """Return up to `limit` visible jobs among the next MOST_READ; fewer need not be the last."""

        def read(count: int, at: str | None) -> tuple[Sequence[Job], str | None]:
            before = JobId(at) if at else None
            page = self._store.page(limit=count, state=state, before=before, skip=self._hidden)
            visible = [job for job in page.jobs if self.shows(job)]
            self._remember(job.id for job in page.jobs if job.id not in self._seen)
            return visible, page.next

        jobs, at = find_visible(read, lambda job: job.id not in skip, limit=limit, before=before)
        return JobPage(jobs, JobId(at) if at else None)

    def shows(self, job: Job) -> bool:
        """Return whether every URI that the job names lies below a prefix of the rules."""
        if job.id not in self._seen and all(map(self._allows, _list_uris(job))):
            self._seen.add(job.id)
        return job.id in self._seen

    def _remember(self, hidden: Iterable[JobId]) -> None:
        if len(self._hidden) >= _MOST_HIDDEN:
            self._hidden.clear()
        self._hidden.update(hidden)

    def _allows(self, named: NamedUri) -> bool:
        if named not in self._allowed:
            self._allowed[named] = self._rules.allow(named) and _is_sound(named)
        return self._allowed[named]


def _is_sound(named: NamedUri) -> bool:
    """Return whether the URI would be accepted today; that of an old job may lead out of its prefix."""
    try:
        named.require_sound()
    except InvalidSpec:
        return False
    return True


def _list_uris(job: Job) -> Iterator[NamedUri]:
    """Yield every URI that the job names, with the origin of its config."""
    yield from uris_of(job.spec)
    if job.config_uri is not None:
        yield NamedUri(field="config_uri", uri=job.config_uri, is_output=False)

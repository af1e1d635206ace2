"""Searching jobs by words and by what they name, newest first: each page reads a limited number of jobs."""

from dataclasses import asdict, dataclass, replace
from typing import Self
from urllib.parse import urlencode

from jobs.control.control import JobControl
from jobs.ids import JobId
from jobs.model import Job, JobState

PAGE = 50
_STEP = 200  # jobs read together while searching
_MOST_READ = 1000  # jobs read for one page


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The jobs that are searched for: those that meet every field which is set.

    The fields are named as in the page's address.
    """

    q: str = ""  # words, each of which the job must hold somewhere
    state: JobState | None = None
    model: str = ""
    family: str = ""
    label: str = ""  # "name", or "name:value"
    owner: str = ""
    target: str = ""

    @property
    def narrowed(self) -> dict[str, str]:
        """The fields that are set besides the words and the state."""
        return {name: value for name, value in asdict(self).items() if value and name not in ("q", "state")}

    @property
    def is_search(self) -> bool:
        """True if jobs have to be looked through: only the state has an index."""
        return bool(self.q.split() or self.narrowed)

    def without(self, name: str) -> Self:
        """Return this search without one of its narrowed fields."""
        return replace(self, **{name: ""})  # type: ignore[arg-type]  # the name is not the state's

    def in_state(self, state: JobState | None) -> Self:
        return replace(self, state=state)

    def address(self, before: str | None = None) -> str:
        """Return the address of the page that shows these jobs, or those older than `before`."""
        given = {**asdict(self), "before": before}
        query = urlencode({name: value for name, value in given.items() if value})
        return f"/?{query}" if query else "/"

    def fits(self, job: Job) -> bool:
        """Return whether a job meets all fields but the state."""
        return (
            _is_alike(self.model, job.model)
            and _is_alike(self.family, job.family)
            and _is_alike(self.owner, job.owner)
            and _has_label(job, self.label)
            and (not self.target or self.target in job.spec.targets)
            and _holds_all(job, self.q.casefold().split())
        )


@dataclass(frozen=True)
class JobMatches:
    """Jobs that match a search, newest first; `next` continues after the last job that was read."""

    jobs: tuple[Job, ...]
    next: JobId | None


def find(jobs: JobControl, wanted: Wanted, before: str | None) -> JobMatches:
    """Find up to a page of the wanted jobs."""
    if not wanted.is_search:
        page = jobs.page(limit=PAGE, state=wanted.state, before=before)
        return JobMatches(page.jobs, page.next)
    found: list[Job] = []
    for _ in range(_MOST_READ // _STEP):
        page = jobs.page(limit=_STEP, state=wanted.state, before=before)
        for job in filter(wanted.fits, page.jobs):
            found.append(job)
            if len(found) == PAGE:
                return JobMatches(tuple(found), job.id)
        before = page.next
        if before is None or len(page.jobs) < _STEP:  # short: the caller sees few of the jobs that were read
            break
    return JobMatches(tuple(found), JobId(before) if before else None)


def _is_alike(wanted: str, given: str | None) -> bool:
    return not wanted or (given is not None and wanted.casefold() == given.casefold())


def _has_label(job: Job, wanted: str) -> bool:
    name, given, value = wanted.partition(":")
    if not wanted:
        return True
    return job.labels.get(name.strip()) == value.strip() if given else name in job.labels


def _holds_all(job: Job, words: list[str]) -> bool:
    if not words:
        return True
    spec = job.spec
    failures = [job.failure, *(tower.failure for tower in job.towers)]
    named = [
        job.id,
        job.model,
        job.family,
        job.owner,
        *job.labels.values(),
        spec.checkpoint_uri,
        spec.output_uri,
        job.config_uri,
        spec.item_input_uri,
        spec.sample_input_uri,
        spec.mode,
        spec.device,
        job.lease.worker if job.lease else None,
        *(failure.code for failure in failures if failure),
    ]
    text = " ".join(each for each in named if each).casefold()
    return all(word in text for word in words)

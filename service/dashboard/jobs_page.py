"""The page of all jobs: the list, and what it can be narrowed to."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from jobs.model import Job, JobState
from service.dashboard.render import Page
from service.dashboard.search import JobMatches, Wanted

_MOST_OFFERED = 100  # values of one field


@dataclass(frozen=True)
class Filter:
    """A link to the jobs in one state, with their number."""

    name: str
    address: str
    count: int | None


@dataclass(frozen=True)
class Narrowing:
    """A condition that the list meets, and the link to the list without it."""

    name: str
    value: str
    address: str


@dataclass(frozen=True)
class Field:
    """A field of the form that narrows the list, with values to choose from."""

    name: str
    value: str
    example: str
    offered: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class JobsPage(Page):
    """The list of jobs, with all that it is narrowed to."""

    template: ClassVar[str] = "jobs.html"
    here: ClassVar[str] = "jobs"

    found: JobMatches
    counts: Mapping[JobState, int]  # empty if the reader does not see all jobs
    wanted: Wanted
    is_first: bool

    @property
    def filters(self) -> tuple[Filter, ...]:
        """Links to the jobs in each state, and to all jobs; the numbers are those of all jobs."""
        counts = {} if self.wanted.is_search else self.counts
        states = (
            Filter(state, self.wanted.in_state(state).address(), counts.get(state)) for state in JobState
        )
        return Filter("all", self.wanted.in_state(None).address(), None), *states

    @property
    def narrowings(self) -> tuple[Narrowing, ...]:
        return tuple(
            Narrowing(name, value, self.wanted.without(name).address())
            for name, value in self.wanted.narrowed.items()
        )

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the form; they offer what the jobs on the page name."""
        jobs = self.found.jobs
        return (
            Field("model", self.wanted.model, "ranker", _offer(job.model for job in jobs)),
            Field("family", self.wanted.family, "dssm", _offer(job.family for job in jobs)),
            Field("label", self.wanted.label, "team or team:ads", _offer(_labels_of(jobs))),
            Field("owner", self.wanted.owner, "trainer", _offer(job.owner for job in jobs)),
            Field("target", self.wanted.target, "avx512", _offer(_targets_of(jobs))),
        )

    @property
    def newest(self) -> str:
        return self.wanted.address()

    @property
    def chosen(self) -> str:
        return self.wanted.state or "all"

    @property
    def older(self) -> str | None:
        return self.wanted.address(self.found.next) if self.found.next else None

    def address_of(self, name: str, value: str) -> str:
        """Return the address of the list of all jobs that have this value in one field."""
        return Wanted(**{name: value}).address()  # type: ignore[arg-type]  # no state


def _labels_of(jobs: tuple[Job, ...]) -> list[str]:
    return [f"{name}:{value}" for job in jobs for name, value in job.labels.items()]


def _targets_of(jobs: tuple[Job, ...]) -> list[str]:
    return [target for job in jobs for target in job.spec.targets]


def _offer(values: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(sorted({value for value in values if value})[:_MOST_OFFERED])

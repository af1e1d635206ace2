"""The content of each page, computed from jobs, workers and manifests."""

from dataclasses import dataclass
from typing import ClassVar

from exporter.manifest import Manifest, TowerEntry
from exporter.spec import Target
from jobs.fleet.roster import WorkerNotice
from jobs.ids import JobId
from jobs.model import Job
from service.dashboard.charts import Chart, error_chart, latency_chart
from service.dashboard.render import Page
from service.schemas import PlanView


@dataclass(frozen=True, kw_only=True)
class TowerReport:
    """A published tower and the plots of its verification."""

    entry: TowerEntry
    errors: Chart | None
    latency: Chart | None

    @classmethod
    def of(cls, entry: TowerEntry) -> "TowerReport":
        return cls(entry=entry, errors=error_chart(entry.verified), latency=latency_chart(entry.verified))


@dataclass(frozen=True, kw_only=True)
class TargetReport:
    """The artifact published for one target, or the reason why there is none to show."""

    target: Target | None  # None if the job has only one
    manifest: Manifest | None = None
    problem: str = ""

    @property
    def towers(self) -> tuple[TowerReport, ...]:
        return tuple(TowerReport.of(entry) for entry in self.manifest.towers) if self.manifest else ()

    @property
    def suffix(self) -> str:
        """The end of the ids of its headings, which makes them unique on the page."""
        return f"-{self.target}" if self.target else ""


@dataclass(frozen=True, kw_only=True)
class ReportPage(Page):
    """The verification of the towers, as the manifests report it."""

    template: ClassVar[str] = "report.html"
    every: ClassVar[int] = 0

    job: Job
    reports: tuple[TargetReport, ...]
    chosen: Target | None  # None: every target

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets to choose from; empty if there is only one."""
        return self.job.spec.targets if len(self.job.spec.targets) > 1 else ()


@dataclass(frozen=True, kw_only=True)
class PlanPage(Page):
    """The dim plan of a job: the input sizes that vary, and those that vary together."""

    template: ClassVar[str] = "plan.html"
    every: ClassVar[int] = 0

    job: Job
    plan: PlanView


@dataclass(frozen=True, kw_only=True)
class WorkersPage(Page):
    """The workers that are alive, the jobs that they run, and the queue."""

    template: ClassVar[str] = "workers.html"
    here: ClassVar[str] = "workers"

    workers: tuple[WorkerNotice, ...]
    running: tuple[Job, ...]
    queued: tuple[Job, ...]  # the newest of the queued jobs, the longest waiting first
    waiting: int  # number of queued jobs that the reader sees
    more_wait: bool  # whether there may be more of them
    oldest: Job | None

    @property
    def sees_all(self) -> bool:
        return self.reader is None or self.reader.sees_all

    def jobs_of(self, worker: WorkerNotice) -> tuple[JobId, ...]:
        """Return the jobs that a worker runs, as far as the reader sees them."""
        led = tuple(job.id for job in self.running if job.lease and job.lease.worker == worker.id)
        return worker.jobs if self.sees_all else led


@dataclass(frozen=True, kw_only=True)
class ErrorPage(Page):
    """The page that is shown instead of another one after an error."""

    template: ClassVar[str] = "error.html"
    every: ClassVar[int] = 0

    status: str
    code: str
    message: str
    hint: str


@dataclass(frozen=True, kw_only=True)
class SignInPage(Page):
    """The form that asks for an API key."""

    template: ClassVar[str] = "sign_in.html"
    every: ClassVar[int] = 0

    wanted: str  # the page to show afterwards
    refused: str  # why the last key was refused

"""The page of one job: its towers side by side, what they published, and what may be done next."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from exporter.outcome import Failure
from jobs.control.releases import Release
from jobs.model import MAX_SETBACKS, Job, JobState, TowerProgress, TowerState
from service.access.callers import Scope
from service.dashboard.job.failures import FailureView, may_help_to_retry
from service.dashboard.job.loading import LoadLines, load_lines
from service.dashboard.render import Page
from service.dashboard.timeline import StageBar, TimedTower, longest_of, time_towers, timeline


@dataclass(frozen=True, kw_only=True)
class JobDetailsPage(Page):
    """One job: its towers side by side."""

    template: ClassVar[str] = "job.html"
    attempts: ClassVar[int] = MAX_SETBACKS

    job: Job
    promoted: Release | None = None  # of the job's model, as far as the reader sees it

    @property
    def may_cancel(self) -> bool:
        return self.may_submit and not self.job.state.is_final and not self.job.cancel_requested

    @property
    def may_retry(self) -> bool:
        """True if the reader may retry the job, and one of its failures may go away by that."""
        failures = [tower.failure for tower in self.job.towers if tower.state is TowerState.FAILED]
        helps = any(failure is None or may_help_to_retry(failure) for failure in failures)
        return self.may_submit and self.job.state.is_final and helps

    @property
    def may_promote(self) -> bool:
        is_release = self.job.model is not None and self.job.state is JobState.SUCCEEDED
        return self._may(Scope.ADMIN) and is_release and not self.is_promoted

    @property
    def is_promoted(self) -> bool:
        return self.promoted is not None and self.promoted.job_id == self.job.id

    @property
    def may_submit(self) -> bool:
        return self._may(Scope.SUBMIT)

    @property
    def has_published(self) -> bool:
        return self.job.manifest_uri is not None

    @property
    def queued_seconds(self) -> float | None:
        """The seconds that it waited for its only attempt; None if there were others, or none."""
        job = self.job
        if job.started_at is None or job.attempt != 1:
            return None
        return (job.started_at - job.created_at).total_seconds()

    @cached_property
    def _timed(self) -> Mapping[str, TimedTower]:
        return {timed.tower.label: timed for timed in time_towers(self.job)}

    def bars(self, tower: TowerProgress) -> tuple[StageBar, ...]:
        return timeline(self._timed[tower.label], longest_of(self._timed.values()))

    @property
    def shared_failure(self) -> FailureView | None:
        """The failure to show above the towers: of the attempt as a whole, not of one tower alone."""
        failure, towers = self.job.failure, self.job.towers
        if failure is None:
            return None
        own = [tower for tower in towers if tower.failure == failure]
        return FailureView.of(failure) if len(own) != 1 else None

    def failure_of(self, tower: TowerProgress) -> FailureView | None:
        """Return what failed on this tower alone; it is not said again where the job's failure says it."""
        shared = self.shared_failure
        if tower.failure is None or (shared and tower.failure == shared.failure):
            return None
        return FailureView.of(tower.failure)

    @property
    def failed_towers(self) -> tuple[tuple[TowerProgress, Failure], ...]:
        """The towers that failed on their own, with why."""
        return tuple(
            (tower, tower.failure) for tower in self.job.towers if tower.failure and self.failure_of(tower)
        )

    @property
    def load_lines(self) -> tuple[LoadLines, ...]:
        return load_lines(self.job)

    @property
    def news(self) -> str:
        """The job in one sentence, for screen readers."""
        towers = [
            f"{tower.label} tower {tower.state}" + (f", {tower.stage}" if tower.stage else "")
            for tower in self.job.towers
        ]
        blessed = {True: " Release blessed.", False: " Release not blessed.", None: ""}[self.job.blessed]
        return f"Export {self.job.state.replace('_', ' ')}. {'; '.join(towers)}.{blessed}"

    def _may(self, scope: Scope) -> bool:
        return self.reader is not None and self.reader.may(scope)

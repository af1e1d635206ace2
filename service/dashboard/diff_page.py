"""The comparison of two releases as a page of the dashboard, and as a file that needs nothing else."""

from dataclasses import dataclass
from typing import ClassVar

from exporter.reports.comparison import Comparison, LatencyRatio, OutputDiff, TableDiff, TowerDiff
from exporter.reports.comparison_text import summarise
from jobs.control.releases import Release, ReleasedTower
from jobs.model import Job, TowerProgress
from service.dashboard.histograms import Bars, RatioBar, histogram_bars, ratio_bar
from service.dashboard.render import STATIC, Page, render

_MOST_DRAWN = 8  # tables and outputs of a tower that are drawn; all of them are in its tables


@dataclass(frozen=True, kw_only=True)
class TablePlots:
    """A changed table and its plots."""

    table: TableDiff
    changes: Bars | None
    norms: Bars | None


@dataclass(frozen=True, kw_only=True)
class OutputPlot:
    """An output and the plot of its values, or of its cosines."""

    output: OutputDiff
    bars: Bars | None


@dataclass(frozen=True, kw_only=True)
class TowerView:
    """One tower of a comparison, with its plots."""

    diff: TowerDiff

    @property
    def tables(self) -> tuple[TablePlots, ...]:
        """The tables that changed most, with plots."""
        changed = [table for table in self.diff.tables if table.rows_changed][:_MOST_DRAWN]
        return tuple(
            TablePlots(
                table=table,
                changes=histogram_bars(table.relative_changes),
                norms=histogram_bars(table.norms),
            )
            for table in changed
        )

    @property
    def outputs(self) -> tuple[OutputPlot, ...]:
        """The outputs that changed, with plots."""
        outputs = self.diff.outputs.outputs if self.diff.outputs else ()
        changed = [output for output in outputs if output.rows_changed][:_MOST_DRAWN]
        return tuple(OutputPlot(output=each, bars=histogram_bars(each.histogram)) for each in changed)

    @property
    def ratios(self) -> tuple[tuple[LatencyRatio, RatioBar], ...]:
        latency = self.diff.latency
        return tuple((each, ratio_bar(each)) for each in latency.ratios) if latency else ()

    @property
    def cosines(self) -> Bars | None:
        """The plot of the cosines of item vectors."""
        return histogram_bars(self.diff.vectors.cosines) if self.diff.vectors else None


@dataclass(frozen=True, kw_only=True)
class DiffView:
    """A comparison, ready to be drawn."""

    comparison: Comparison

    @property
    def summary(self) -> tuple[tuple[str, str], ...]:
        return summarise(self.comparison)

    @property
    def towers(self) -> tuple[TowerView, ...]:
        return tuple(TowerView(diff=tower) for tower in self.comparison.towers)


@dataclass(frozen=True, kw_only=True)
class PackagePair:
    """A tower's package of a job, and that of the promoted release."""

    tower: TowerProgress
    released: ReleasedTower | None

    @property
    def is_same(self) -> bool:
        """True if the two packages are known to be byte for byte the same."""
        digest = self.tower.digest
        return self.released is not None and digest is not None and digest == self.released.digest


@dataclass(frozen=True, kw_only=True)
class DiffPage(Page):
    """The comparison of a job's artifact with its baseline, or how to get one."""

    template: ClassVar[str] = "diff.html"
    every: ClassVar[int] = 0

    job: Job
    view: DiffView | None
    problem: str = ""
    promoted: Release | None = None  # of the job's model now, as far as the reader sees it

    @property
    def wanted(self) -> str:
        """The other side of the comparison that is missing: the promoted release, unless it is this one."""
        return self.promoted.job_id if self.promoted and self.promoted.job_id != self.job.id else "OLD"

    @property
    def is_with_promoted(self) -> bool:
        """True if the comparison is with the release that is promoted now, or none is promoted."""
        compared = self.view.comparison.old.job_id if self.view else None
        return self.promoted is None or self.promoted.job_id in (compared, self.job.id)

    @property
    def packages(self) -> tuple[PackagePair, ...]:
        """The packages of this job beside those of the promoted release; none if it is the promoted one."""
        if self.promoted is None or self.promoted.job_id == self.job.id:
            return ()
        released = {(tower.name, tower.target): tower for tower in self.promoted.towers}
        return tuple(
            PackagePair(tower=tower, released=released.get((tower.name, tower.target)))
            for tower in self.job.towers
            if tower.package_uri is not None
        )


@dataclass(frozen=True, kw_only=True)
class DiffFile(Page):
    """A comparison as one file, with its styles inside."""

    template: ClassVar[str] = "diff_file.html"
    every: ClassVar[int] = 0

    view: DiffView

    @property
    def style(self) -> str:
        return (STATIC / "style.css").read_text()


def render_diff(comparison: Comparison) -> str:
    """Return a comparison as a page that loads nothing and runs no script."""
    return render(DiffFile(view=DiffView(comparison=comparison)))

"""The comparison of two releases as a page of the dashboard, and as a file that needs nothing else."""

from dataclasses import dataclass
from typing import ClassVar

from exporter.reports.comparison import Comparison, LatencyRatio, OutputDiff, TableDiff, TowerDiff
from exporter.reports.comparison_text import summarise
from jobs.model import Job
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
class DiffPage(Page):
    """The comparison of a job's artifact with its baseline, or how to get one."""

    template: ClassVar[str] = "diff.html"
    every: ClassVar[int] = 0

    job: Job
    view: DiffView | None
    problem: str = ""


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

"""The results of a benchmark: figures as JSON, the same figures as Markdown tables, and a plot."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pydantic import BaseModel, SerializeAsAny

from benchmarks.harness.machine import Machine

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A Markdown table: title, column names, and rows of text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> str:
        lines = [self.columns, ("---",) * len(self.columns), *self.rows]
        return f"{self.title}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class Report:
    """Figures of a benchmark, with their tables and the function that plots them."""

    figures: BaseModel
    tables: tuple[Table, ...]
    draw: Callable[[Figure], None]


class RecordedReport(BaseModel):
    """The contents of `<name>.json`."""

    benchmark: str
    machine: Machine
    seconds: float  # of the whole benchmark
    figures: SerializeAsAny[BaseModel]


def write_report(report: Report, *, name: str, machine: Machine, seconds: float, folder: Path) -> None:
    """Write <name>.json, <name>.md and <name>.png, each completely or not at all, and print the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    recorded = RecordedReport(
        benchmark=name, machine=machine, seconds=round(seconds, 1), figures=report.figures
    )
    tables = "\n".join(table.to_markdown() for table in report.tables)
    with _replacing(folder / f"{name}.json") as path:
        path.write_text(recorded.model_dump_json(indent=1) + "\n")
    with _replacing(folder / f"{name}.md") as path:
        path.write_text(f"# {name}\n\n{machine.text()}; {seconds / 60:.0f} minutes.\n\n{tables}")
    with _replacing(folder / f"{name}.png") as path:
        _plot(report.draw, path)
    sys.stdout.write(f"\n{tables}\nwritten: {folder / name}.json, .md and .png\n")
    sys.stdout.flush()


def _plot(draw: Callable[[Figure], None], path: Path) -> None:
    figure = Figure(layout="constrained", figsize=(9, 4.5), dpi=110)
    FigureCanvasAgg(figure)
    draw(figure)
    figure.savefig(path, format="png", metadata={"Software": None})


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a file beside the target that replaces it at the end."""
    partial = target.with_name(f".{target.name}.partial")
    try:
        yield partial
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)

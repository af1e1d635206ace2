"""What a benchmark leaves behind, and what it does not."""

import json
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from pydantic import BaseModel

from benchmarks.harness.machine import Machine
from benchmarks.harness.plots import Titles, draw_bars, draw_lines, draw_stacks
from benchmarks.harness.report import Report, Table, write_report
from benchmarks.harness.statistics import Spread


class Figures(BaseModel):
    ratio: Spread


def _draw(figure: Figure) -> None:
    bars, lines, stacks = figure.subplots(1, 3)
    draw_bars(bars, ["a"], {"one": [Spread.of([1.0, 2.0])]}, Titles(title="bars"), aim=1.0)
    draw_lines(lines, [1.0, 2.0], {"one": [3.0, 4.0]}, Titles(title="lines"))
    draw_stacks(stacks, {"cold": {"trace": 1.0, "compile": 2.0}, "warm": {"trace": 0.1}}, Titles(title="s"))


def _report() -> Report:
    table = Table(title="What it is", columns=("a", "b"), rows=(("1", "2"),))
    return Report(figures=Figures(ratio=Spread.of([0.5])), tables=(table,), draw=_draw)


def _write(report: Report, folder: Path) -> None:
    write_report(report, name="thing", machine=Machine.since(1.0), seconds=90.0, folder=folder)


def test_figures_tables_and_plot_are_written(tmp_path: Path) -> None:
    _write(_report(), tmp_path)
    recorded = json.loads((tmp_path / "thing.json").read_text())
    assert recorded["figures"]["ratio"]["values"] == [0.5]
    assert recorded["machine"]["load_before"] == 1.0
    assert "| a | b |\n| --- | --- |\n| 1 | 2 |" in (tmp_path / "thing.md").read_text()
    assert (tmp_path / "thing.png").read_bytes().startswith(b"\x89PNG")


def test_tables_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(_report(), tmp_path)
    assert "| 1 | 2 |" in capsys.readouterr().out


def test_a_plot_that_fails_leaves_the_last_one(tmp_path: Path) -> None:
    def fail(figure: Figure) -> None:
        raise RuntimeError("no plot")

    (tmp_path / "thing.png").write_bytes(b"the last one")
    report = _report()
    with pytest.raises(RuntimeError, match="no plot"):
        _write(Report(figures=report.figures, tables=report.tables, draw=fail), tmp_path)
    assert (tmp_path / "thing.png").read_bytes() == b"the last one"
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []

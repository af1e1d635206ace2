"""A benchmark's command: every one has it, and none leaves anything but results."""

import importlib
from pathlib import Path

import pytest

import benchmarks
from benchmarks.__main__ import main as run_all
from benchmarks.harness.command import Run, build_parser, run_benchmark
from benchmarks.harness.report import Report
from benchmarks.harness.requirements import REQUIREMENTS

_README = Path(benchmarks.__path__[0]) / "README.md"


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_every_benchmark_is_a_command_that_says_what_it_needs(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit, match="0"):
        importlib.import_module(f"benchmarks.{name}").main()
    assert REQUIREMENTS[name].text() in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_every_benchmark_is_described(name: str) -> None:
    assert f"\n## `{name}`" in _README.read_text()


def test_an_interrupted_benchmark_leaves_nothing(tmp_path: Path) -> None:
    def measure(run: Run) -> Report:
        (run.folder / "large").write_text("…")
        raise KeyboardInterrupt

    folders = ["--folder", str(tmp_path / "work"), "--results", str(tmp_path / "results"), "--quick"]
    assert run_benchmark("warm", build_parser("warm", "").parse_args(folders), measure) == 130
    assert list((tmp_path / "work").iterdir()) == []
    assert not (tmp_path / "results").exists()


def test_a_benchmark_that_nobody_knows_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "wrm"])
    with pytest.raises(SystemExit, match="2"):
        run_all()
    assert "there is no benchmark wrm" in capsys.readouterr().err

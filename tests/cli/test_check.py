"""`slipway check`: its request, and how it prints its findings."""

from pathlib import Path

import pytest

from cli.check import show
from cli.main import main
from exporter.check.report import CheckReport, Finding, TowerCheck
from exporter.outcome import Failure
from exporter.spec import TowerName
from tests.jobs.factories import make_entry, make_manifest

FOUND = (
    Finding(subject="agrees", case="batch_7", passed=True, of_allowed=0.125),
    Finding(
        subject="nodes",
        case="random_3",
        passed=False,
        sizes={"batch": 7},
        detail="node t = aten.t.default (from model.py:3): stride is (1, 7), promised (4, 1)",
    ),
)
REPORT = CheckReport(
    passed=False,
    seed=7,
    towers=(
        TowerCheck(tower=TowerName.USER, findings=FOUND, smallest="It has 1 node."),
        TowerCheck(tower=TowerName.ITEM, failure=Failure(code="trace_failed", message="no", hint="look")),
    ),
)


def test_failures_are_told_by_case_and_the_rest_by_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    show(REPORT)
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines]
    assert ["package against eager", "1", "0", "12.50%"] in rows
    assert ["node by node, as traced", "random_3", "batch 7", FOUND[1].detail] in rows
    assert "user tower: It has 1 node." in lines and "item tower: [trace_failed] no; look" in lines
    assert lines[-1] == "FAILED; sizes drawn with seed 7"


def test_only_a_report_without_failures_has_passed() -> None:
    assert [tower.passed for tower in REPORT.towers] == [False, False]
    assert TowerCheck(tower=TowerName.USER, findings=FOUND[:1]).passed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "[invalid_spec]"),
        (["--artifact", "nowhere"], "nowhere"),
        (["--config", "no.config", "--checkpoint", "c"], "[source_not_found]"),
        (["--sizes", "many"], "'many' is no number of sizes"),
    ],
)
def test_what_cannot_be_checked_is_one_line(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *options]) > 0
    [line] = capsys.readouterr().err.splitlines()
    assert said in line


def test_an_artifact_of_a_config_that_was_given_as_text_needs_the_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = make_manifest("01jd6v7x4mzq3w8c5kftn2rbha", make_entry(TowerName.USER))
    (tmp_path / "manifest.json").write_text(manifest.model_dump_json())
    assert main(["check", "--artifact", str(tmp_path)]) > 0
    [line] = capsys.readouterr().err.splitlines()
    assert "[invalid_spec]" in line and "names no config" in line and "--config" in line

"""`slipway check` of a published artifact, against what it was made from."""

from pathlib import Path

import pytest

from cli.main import main
from exporter.check.report import CheckReport, Subject
from tests.e2e.conftest import FIXTURES, Export

pytestmark = pytest.mark.slow

ITEM = ("--tower", "item")


def test_an_artifact_is_checked_against_its_sources(
    artifact_of: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--artifact", artifact_of("hstu_match"), *ITEM, "--sizes", "5", "--seed", "3", "--json")
    capsys.readouterr()
    assert main(["check", *options]) == 0
    report = CheckReport.model_validate_json(capsys.readouterr().out)
    [item] = report.towers
    assert report.passed and {each.subject for each in item.findings} == set(Subject)
    drawn = {each.case for each in item.findings if each.case.startswith("random_")}
    assert drawn == {f"random_{number}" for number in range(5)}


def test_another_checkpoint_is_not_what_it_was_made_from(
    artifact_of: Export, capsys: pytest.CaptureFixture[str]
) -> None:
    other = str(Path(FIXTURES) / "hstu_match_desc" / "model.ckpt-11")
    assert main(["check", "--artifact", artifact_of("hstu_match"), *ITEM, "--checkpoint", other]) == 1
    told = " ".join(capsys.readouterr().out.split())  # as if no line were broken
    assert "is not the checkpoint that" in told

"""`slipway check` of a published artifact, against what it was made from."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporter.check.cases import TITLES
from exporter.check.report import CheckReport
from tests.e2e.conftest import FIXTURES, Export

pytestmark = pytest.mark.slow


def check(artifact: str, *options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it forks, and the one that runs tests has threads by now."""
    command = [sys.executable, "-m", "cli.main", "check", "--artifact", artifact, "--tower", "item"]
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False)


def test_an_artifact_is_checked_against_its_sources(artifact_of: Export) -> None:
    ended = check(artifact_of("hstu_match"), "--sizes", "5", "--seed", "3", "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = CheckReport.model_validate_json(ended.stdout)
    [item] = report.towers
    one_package = set(TITLES) - {"handover"}  # nothing is handed from one package to another
    assert report.passed and {each.subject for each in item.findings} == one_package
    drawn = {each.case for each in item.findings if each.case.startswith("random_")}
    assert drawn == {f"random_{number}" for number in range(5)}


def test_another_checkpoint_is_not_what_it_was_made_from(artifact_of: Export) -> None:
    other = str(Path(FIXTURES) / "hstu_match_desc" / "model.ckpt-11")
    ended = check(artifact_of("hstu_match"), "--checkpoint", other)
    assert ended.returncode == 1
    assert "is not the checkpoint that" in " ".join(ended.stdout.split())  # as if no line were broken

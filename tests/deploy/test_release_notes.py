"""A release's notes are its section of the changelog."""

import re
import subprocess
import sys

import pytest
import yaml

from deploy.release_notes import CHANGELOG, UNRELEASED, sections
from exporter.version import __version__
from tests.architecture.tree import ROOT

KNOWN = sections(CHANGELOG.read_text())
HEADING = re.compile(r"## (Unreleased|\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d)")


def order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_every_heading_is_a_version_with_its_day() -> None:
    headings = [line for line in CHANGELOG.read_text().splitlines() if line.startswith("## ")]
    assert [line for line in headings if not HEADING.fullmatch(line)] == []


def test_versions_are_told_newest_first_and_the_code_is_of_one_of_them() -> None:
    released = [version for version in KNOWN if version != UNRELEASED]
    assert released == sorted(released, key=order, reverse=True)
    assert next(iter(KNOWN)) == UNRELEASED and __version__ in released


def test_the_chart_is_of_the_same_version() -> None:
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "slipway" / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_notes_are_the_section_alone() -> None:
    text = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.1.0 - 2026-01-01\n\n### Exports\n\n- first\n"
    assert sections(text) == {"Unreleased": "- new\n", "0.1.0": "### Exports\n\n- first\n"}


@pytest.mark.parametrize("version", [__version__, f"v{__version__}"])
def test_the_command_prints_them(version: str) -> None:
    command = [sys.executable, "-m", "deploy.release_notes", version]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout == KNOWN[__version__]


def test_a_version_without_notes_is_refused() -> None:
    command = [sys.executable, "-m", "deploy.release_notes", "9.9.9"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 2 and "no section 9.9.9; it has Unreleased, 0.1.0" in told.stderr

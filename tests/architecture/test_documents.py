"""What the documents tell a reader to do and to read exists."""

import re

import pytest

from tests.architecture.tree import ROOT

DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_its_commands_exist(document: str) -> None:
    commands = re.findall(r"^    make ([a-z-]+)|`make ([a-z-]+)", (ROOT / document).read_text(), re.MULTILINE)
    targets = set(TARGET.findall((ROOT / "Makefile").read_text()))
    assert {left or right for left, right in commands} <= targets


@pytest.mark.parametrize("document", [*DOCUMENTS, "docs/errors.md"])
def test_the_files_it_names_exist(document: str) -> None:
    named = set(PATH.findall((ROOT / document).read_text()))
    roots = [ROOT, ROOT / "exporter"]  # ARCHITECTURE.md names the exporter's folders without it
    assert sorted(path for path in named if not any((root / path).exists() for root in roots)) == []


@pytest.mark.parametrize(
    ("marker", "target"), [("faults",) * 2, ("families",) * 2, ("gpubuild", "gpu-build"), ("ranks",) * 2]
)
def test_tests_left_out_of_all_others_are_run_by_the_target_of_their_name(marker: str, target: str) -> None:
    [recipe] = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    run = [ROOT / path for path in re.findall(r"\btests/\S+", recipe)]
    tests = (ROOT / "tests").rglob("test_*.py")
    marked = [path for path in tests if f"pytest.mark.{marker}" in path.read_text()]
    assert marked
    assert [path for path in marked if not any(path.is_relative_to(each) for each in run)] == []


def test_the_readme_fits_a_screen_or_two() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 110


def test_every_decision_has_its_three_parts() -> None:
    for decision in sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md")):
        headings = re.findall(r"^## (\w+)", decision.read_text(), re.MULTILINE)
        assert headings == ["Context", "Choice", "Consequence"], decision.name

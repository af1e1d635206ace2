"""The commands and files exist that documents, hints and pages tell a reader to run or to read."""

import argparse
import re
import tomllib
from importlib.util import find_spec

import pytest

from cli.main import build_parser
from tests.architecture.tree import PROGRAMS, ROOT, SCRIPTS

DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]
PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")
RUN = re.compile(r"python -m ((?:[a-z_]+\.)*[a-z_]+)(?![.<\w])")  # and not benchmarks.<name>
VARIABLE = re.compile(r"\bSLIPWAY_[A-Z0-9_]+")
TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


def test_commands_that_are_named_exist(tracked_files: list[str]) -> None:
    parts = [action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction)]
    known = {"slipway": {*parts[0].choices}, "make": {*TARGET.findall((ROOT / "Makefile").read_text())}}
    unknown = {
        f"{path}: {program} {command}"
        for path in tracked_files
        if path.endswith((".md", ".py", ".html")) and path.split("/")[0] in {*PROGRAMS, *SCRIPTS, path}
        for program, commands in known.items()
        for command in _commands_of(program, (ROOT / path).read_text())
        if command not in commands
    }
    assert unknown == set()


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("Run `slipway logs JOB`, or `slipway watch JOB`", {"logs", "watch"}),
        ("```console\n$ slipway check --family x\n```", {"check"}),
        ('hint="see `slipway list`", epilog="example: slipway retry JOB"', {"list", "retry"}),
        ("`slipway --help` of the slipway command; kubectl -n slipway create", set()),
    ],
)
def test_a_command_is_recognised(text: str, commands: set[str]) -> None:
    assert _commands_of("slipway", text) == commands


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, *(f"docs/{name}.md" for name in ("access", "errors", "hostile-input", "quickstart"))],
)
def test_the_files_it_names_exist(document: str) -> None:
    named = set(PATH.findall((ROOT / document).read_text()))
    roots = [ROOT, ROOT / "exporter"]  # ARCHITECTURE.md names the exporter's folders without it
    assert sorted(path for path in named if not any((root / path).exists() for root in roots)) == []


def test_the_programs_that_documents_run_exist(tracked_files: list[str]) -> None:
    missing = {
        f"{path}: python -m {name}"
        for path in tracked_files
        if path.endswith(".md") and not path.startswith("CHANGELOG")
        for name in RUN.findall((ROOT / path).read_text())
        if find_spec(name) is None
    }
    assert missing == set()


def test_the_variables_that_documents_name_exist(tracked_files: list[str]) -> None:
    known = set(VARIABLE.findall((ROOT / "docs" / "configuration.md").read_text()))
    missing = {
        f"{path}: {name}"
        for path in tracked_files
        if path.endswith((".md", ".tpl", "NOTES.txt")) and not path.startswith("CHANGELOG")
        for name in set(VARIABLE.findall((ROOT / path).read_text())) - known
    }
    assert missing == set()


@pytest.mark.parametrize(
    ("marker", "target"),
    [("commands",) * 2, ("faults",) * 2, ("families",) * 2, ("gpubuild", "gpu-build"), ("ranks",) * 2],
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


def _commands_of(program: str, text: str) -> set[str]:
    """Return the words after `program` behind a backtick, a prompt or `example:`."""
    return set(re.findall(rf"(?:`|^\$ |example: ){program} ([a-z][a-z-]*)", text, re.MULTILINE))


def test_the_rows_of_the_exporters_map_are_the_layers_of_its_import_contract() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text[text.index("### Inside `exporter/`") : text.index("### Inside `worker/`")]
    rows = [re.findall(r"`(\w+)`", line) for line in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == ["exporter"]]
    assert rows == [re.findall(r"\w+", layer) for layer in layers]

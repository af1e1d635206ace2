"""The operator's documents say everything there is, and nothing that is not."""

import ast
import re

import pytest
import yaml
from pydantic import JsonValue

from docs.configuration import DOCUMENT, PROGRAMS, current_text, variables_of
from jobs.fleet.roster import MemoryRoster
from jobs.fleet.tallies import MemoryTallies
from jobs.stores.memory_store import MemoryJobStore
from service.metrics import render
from tests.architecture.tree import ROOT
from tests.deploy.conftest import with_values
from tests.documents.markdown import blocks_of

OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
OBSERVING = (ROOT / "docs" / "observing.md").read_text()
CODES = re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)
GUIDES = ("operations.md", "serving.md", "quickstart.md", "upgrades.md", "configuration.md")
LINK = re.compile(r"\]\(([\w./-]+)\)|`((?:docs|deploy|docker|examples)/[\w./-]+)`")


def test_the_configuration_reference_is_what_the_settings_say() -> None:
    assert DOCUMENT.read_text() == current_text(), "run `make configuration`"


def test_every_setting_says_what_it_is_for() -> None:
    silent = [
        name for each in PROGRAMS.values() for name, field in variables_of(each) if not field.description
    ]
    assert silent == []


def test_every_settings_class_is_in_the_reference() -> None:
    known = {each.__name__ for each in PROGRAMS.values()} | {"RankSettings"}  # what torchrun tells its ranks
    written = {
        node.name
        for path in ROOT.glob("*/**/settings.py")
        if not path.is_relative_to(ROOT / ".venv")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "BaseSettings" for base in node.bases)
    }
    assert written - known == set()


def test_every_metric_is_explained() -> None:
    text = render(MemoryJobStore(), MemoryRoster(), MemoryTallies()).decode()
    metrics = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    assert {name for name in metrics if f"`{name}`" not in OBSERVING} == set()


@pytest.mark.parametrize("code", CODES)
def test_every_failure_code_has_something_to_do(code: str) -> None:
    assert f"`{code}`" in OPERATIONS


def test_no_code_is_explained_that_cannot_be_met() -> None:
    listed = re.findall(r"^\| `([a-z_]+)`", OPERATIONS, re.MULTILINE)
    assert set(listed) - set(CODES) == set()


@pytest.mark.parametrize("guide", GUIDES)
def test_the_files_it_names_exist(guide: str) -> None:
    text = (ROOT / "docs" / guide).read_text()
    named = {left or right for left, right in LINK.findall(text)}
    assert [path for path in named if not ((ROOT / path).exists() or (ROOT / "docs" / path).exists())] == []


def test_the_values_of_the_quick_start_are_taken_together() -> None:
    text = (ROOT / "docs" / "quickstart.md").read_text()
    parts = [each.text for each in blocks_of("docs/quickstart.md", text) if each.language == "yaml"]
    assert len(parts) == 4
    merged: dict[str, JsonValue] = {}
    for part in parts:
        for name, value in yaml.safe_load(part.replace("sha256:…", f"sha256:{'0' * 64}")).items():
            known = merged.get(name)
            merged[name] = {**known, **value} if isinstance(known, dict) else value
    assert {"ScaledObject", "Ingress"} <= {each.kind for each in with_values(merged)}

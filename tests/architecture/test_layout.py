"""Folders stay small enough to survey, and imports lead down: no module imports itself by way of others."""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

import pytest

from tests.architecture.tree import Module

MAX_MODULES = 15  # in a folder
MAX_EXPORTER_ROOT = 12  # files: what other programs import, and nothing else

Imports = Mapping[str, set[str]]


def test_folders_hold_few_modules(modules: list[Module]) -> None:
    counts = _modules_by_folder([module.path for module in modules if module.is_documented])
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES} == {}


def test_the_exporters_root_holds_its_leaf_only(tracked_files: list[str]) -> None:
    files = [name for name in tracked_files if str(PurePosixPath(name).parent) == "exporter"]
    assert len(files) <= MAX_EXPORTER_ROOT, files


def test_no_module_imports_itself_by_way_of_others(modules: list[Module]) -> None:
    assert (
        _circle({module.name: set(_imported(module.tree)) for module in modules if module.is_documented})
        == []
    )


def test_a_crowded_folder_is_recognised() -> None:
    paths = ["jobs/__init__.py", *(f"jobs/module_{number}.py" for number in range(16)), "jobs/lease/x.py"]
    assert _modules_by_folder(paths) == {"jobs": 16, "jobs/lease": 1}


@pytest.mark.parametrize(
    ("source", "circle"),
    [
        ("import jobs.b", ["jobs.a", "jobs.b", "jobs.a"]),
        ("from jobs import b", ["jobs.a", "jobs.b", "jobs.a"]),
        ("from jobs.b import Name", ["jobs.a", "jobs.b", "jobs.a"]),
        ("def late():\n    from jobs.b import Name", ["jobs.a", "jobs.b", "jobs.a"]),
        ("from jobs.c import Name", []),
        ("import json", []),
    ],
)
def test_a_circle_is_recognised(source: str, circle: list[str]) -> None:
    imports = {"jobs.a": source, "jobs.b": "from jobs import a", "jobs.c": ""}
    found = _circle({name: set(_imported(ast.parse(text))) for name, text in imports.items()})
    assert sorted(set(found)) == sorted(set(circle))


def _modules_by_folder(paths: list[str]) -> Counter[str]:
    """Count the Python files directly in each folder, its initialiser left out."""
    return Counter(str(PurePosixPath(path).parent) for path in paths if not path.endswith("__init__.py"))


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield all that an import may name, be it a module or something in one; imports in functions count."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _circle(imports: Imports) -> list[str]:
    """Return one circle of modules, the first named again at its end, or nothing."""
    try:
        TopologicalSorter({name: found & imports.keys() for name, found in imports.items()}).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []

"""Failures carry codes that a program can act on: distinct, stable, drawn in a tree, and documented."""

import ast
import importlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TypeVar

from exporter.errors import ExportError
from exporter.outcome import Failure
from slipway.rest.errors import SlipwayError
from tests.architecture.tree import PROGRAMS, ROOT, Module

Error = TypeVar("Error", ExportError, SlipwayError)

CODE = re.compile(r"^\| `([a-z_]+)` \|", re.MULTILINE)

for program in PROGRAMS:  # so that every class is known
    for file in sorted((ROOT / program).rglob("errors.py")):
        importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def _tree(error: type[Error]) -> Iterator[type[Error]]:
    yield error
    for child in error.__subclasses__():
        yield from _tree(child)


CLIENT = list(_tree(SlipwayError))[1:]  # errors of calls, which are no errors of exports
ERRORS = [error for error in _tree(ExportError) if error.__module__.split(".")[0] in PROGRAMS]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in ERRORS]
    assert sorted(codes) == sorted(set(codes))


def test_every_error_stands_in_the_drawing_of_its_module() -> None:
    """A module with a single error needs no drawing."""
    crowded = {module for module, count in Counter(error.__module__ for error in ERRORS).items() if count > 1}
    drawings = {
        error: str(sys.modules[error.__module__].__doc__) for error in ERRORS if error.__module__ in crowded
    }
    assert [error.__name__ for error, drawing in drawings.items() if error.__name__ not in drawing] == []


def test_new_branches_of_the_tree_grow_in_files_called_errors(modules: list[Module]) -> None:
    """Elsewhere a class may refine a documented error, whose code it keeps."""
    names = {error.__name__ for error in ERRORS if error.code not in _documented()}
    elsewhere = {
        f"{module.path}: {node.name}"
        for module in modules
        if module.is_shipped and not module.path.endswith("/errors.py")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and names & {ast.unparse(base) for base in node.bases}
    }
    assert elsewhere == set()


def test_every_code_that_can_be_met_is_documented(modules: list[Module]) -> None:
    raised = {name for module in modules if module.is_shipped for name in _raised(module)}
    met = {error.code for error in ERRORS if error.__name__ in raised or not error.__subclasses__()}
    assert (met | {error.code for error in CLIENT}) - _documented() == set()


def test_every_error_says_what_to_do() -> None:
    silent = [error.__name__ for error in ERRORS if error is not ExportError and not error.advice]
    assert silent + [error.__name__ for error in CLIENT if not error.advice] == []


def test_nothing_is_documented_that_cannot_be_met() -> None:
    internal = Failure.of(RuntimeError("x")).code
    met = {error.code for error in ERRORS} | {error.code for error in CLIENT}
    assert _documented() - met == {internal}


def _documented() -> set[str]:
    return set(CODE.findall((ROOT / "docs" / "errors.md").read_text()))


def _raised(module: Module) -> Iterator[str]:
    """The names of the classes that are made in a `raise`, wherever they were imported from."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield ast.unparse(node.exc.func).rpartition(".")[2]

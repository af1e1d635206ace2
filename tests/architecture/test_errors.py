"""Failures carry codes that a program can act on: distinct, stable, documented, and mapped to HTTP."""

import re
from collections.abc import Iterator

from exporter import errors
from exporter.errors import ExportError
from exporter.outcome import Failure
from tests.architecture.tree import ROOT

CODE = re.compile(r"^\| `([a-z_]+)` \|", re.MULTILINE)


def _tree(error: type[ExportError]) -> Iterator[type[ExportError]]:
    yield error
    for child in error.__subclasses__():
        yield from _tree(child)


ERRORS = [error for error in _tree(ExportError) if error.__module__ == errors.__name__]


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in ERRORS]
    assert sorted(codes) == sorted(set(codes))


def test_every_error_stands_in_the_drawing() -> None:
    drawing = errors.__doc__ or ""
    assert [error.__name__ for error in ERRORS if error.__name__ not in drawing] == []


def test_all_errors_are_raised_from_one_tree() -> None:
    assert {error.__name__ for error in _tree(ExportError)} == {error.__name__ for error in ERRORS}


def test_docs_list_exactly_the_codes_there_are() -> None:
    documented = CODE.findall((ROOT / "docs" / "errors.md").read_text())
    raised = {error.code for error in ERRORS if not error.__subclasses__()} | {"internal_error"}
    assert raised <= set(documented)
    assert Failure.of(RuntimeError("x")).code in documented

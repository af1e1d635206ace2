"""Every module and public class says in a sentence what it is, and every docstring stands alone."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.architecture.tree import Module

# Words that begin a fragment: its subject is in another sentence, or nowhere.
FRAGMENT = re.compile(r"\W*(What|Of|As|Who|Whose|Those|How|Where|Whether|Which|That|It|These|They|None)\b")

FACE = "slipway/__init__.py"  # `slipway.export`: a test sees to it that it imports nothing by itself


def test_every_module_opens_with_a_sentence(modules: list[Module]) -> None:
    silent = {
        module.path
        for module in modules
        if not module.path.startswith("tests/")
        and not module.path.endswith("__init__.py")
        and not _is_sentence(ast.get_docstring(module.tree))
    }
    assert silent == set()


def test_package_initialisers_hold_no_code(modules: list[Module]) -> None:
    """`import exporter.spec` must not pull what a sibling needs. The library's own face is lazy (`FACE`)."""
    busy = {
        module.path
        for module in modules
        if module.is_shipped and module.path.endswith("__init__.py") and module.path != FACE
        if any(not isinstance(node, ast.Expr) for node in module.tree.body)
    }
    assert busy == set()


def test_docstrings_stand_alone(modules: list[Module]) -> None:
    """A reader meets them one by one, in an editor or in a list, without a sentence before them."""
    fragments = {
        f"{module.path}: {docstring.splitlines()[0]}"
        for module in modules
        if module.is_documented
        for docstring in _docstrings(module.tree)
        if FRAGMENT.match(docstring)
    }
    assert fragments == set()


@pytest.mark.parametrize(
    ("docstring", "is_fragment"),
    [
        ("What comes out.", True),
        ("Of one table's lookups.", True),
        ("(As `encode`, in one call.)", True),
        ("The output's width.", False),
        ("Ascending sizes.", False),
        ("Return what comes out.", False),
    ],
)
def test_a_fragment_is_recognised(docstring: str, is_fragment: bool) -> None:
    source = f'def width() -> int:\n    """{docstring}"""'
    [found] = _docstrings(ast.parse(source))
    assert (FRAGMENT.match(found) is not None) is is_fragment


def _docstrings(tree: ast.Module) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented))
    yield from filter(None, found)


def _is_sentence(docstring: str | None) -> bool:
    return docstring is not None and docstring.splitlines()[0].rstrip().endswith((".", ":", "?"))

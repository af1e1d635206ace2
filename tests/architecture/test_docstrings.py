"""Every module and public class says in a sentence what it is."""

import ast

from tests.architecture.tree import Module


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
    """`import exporter.spec` must not pull what a sibling needs."""
    busy = {
        module.path
        for module in modules
        if module.is_shipped and module.path.endswith("__init__.py")
        if any(not isinstance(node, ast.Expr) for node in module.tree.body)
    }
    assert busy == set()


def _is_sentence(docstring: str | None) -> bool:
    return docstring is not None and docstring.splitlines()[0].rstrip().endswith((".", ":", "?"))

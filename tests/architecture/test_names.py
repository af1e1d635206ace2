"""Names say what a thing is: modules are nouns, functions are verbs with their object."""

import ast
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.architecture.tree import Function, Module

# A participle says that something was done, and neither what nor to what.
PARTICIPLES = """
    asked averaged built called carried checked claimed closed compared declared described done ended
    evaluated forked found given guarded hashed held joined judged kept listed loaded lowered made mapped
    marked measured merged moved opened ordered packed padded parsed planned published recorded renamed
    renewed requested saved seen sent served settled shown shrunk signed started stored taken timed told
    translated tried used verified wanted written
"""
GERUNDS = """
    bundling calling closing describing ending finding forking judging keeping making measuring opening
    ordering overrunning packaging probing publishing reading recording requesting running sending settling
    shrinking telling trying verifying writing
"""


def test_modules_are_not_named_by_a_participle(modules: list[Module]) -> None:
    assert [module.path for module in modules if module.is_documented and _is_participle(module.path)] == []


def test_functions_are_not_named_by_a_participle(modules: list[Module]) -> None:
    named = {
        f"{module.path}: {function.name}"
        for module in modules
        if module.is_documented
        for function in _bare_functions(module.tree)
    }
    assert named == set()


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("worker/settling.py", True),
        ("exporter/shards/made/x.py", True),
        ("exporter/artifact/upload.py", False),
    ],
)
def test_a_participle_is_recognised(path: str, refused: bool) -> None:
    assert _is_participle(path) is refused


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def told(): ...", ["told"]),
        ("class A:\n    async def _kept(self): ...", ["_kept"]),
        ("class A:\n    @property\n    def verified(self): ...", []),
        ("def renew_lease(): ...", []),
    ],
)
def test_a_function_named_by_a_participle_is_recognised(source: str, names: list[str]) -> None:
    assert [function.name for function in _bare_functions(ast.parse(source))] == names


def _is_participle(path: str) -> bool:
    return bool({*PARTICIPLES.split(), *GERUNDS.split()} & {*PurePosixPath(path).with_suffix("").parts})


def _bare_functions(tree: ast.Module) -> Iterator[Function]:
    """Yield functions and methods whose whole name is a participle; a property may read as an adjective."""
    for node in ast.walk(tree):
        if (
            isinstance(node, Function)
            and node.name.strip("_") in PARTICIPLES.split()
            and not any(ast.unparse(decorator).endswith("property") for decorator in node.decorator_list)
        ):
            yield node

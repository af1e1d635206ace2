"""Rules for the source that no linter has."""

import io
import re
import tokenize

from tests.architecture.tree import Module

IGNORE = re.compile(r"#\s*(noqa|type:\s*ignore)")
EXPLAINED = re.compile(r"#\s*(noqa:\s*[A-Z0-9, ]+|type:\s*ignore\[[\w, -]+\])\s+\W*\w+\W+\w+")
ROOMS_WITHOUT_A_SUBJECT = {"utils", "util", "helpers", "common", "misc", "base", "manager", "handler"}


def test_every_ignore_carries_its_reason(modules: list[Module]) -> None:
    unexplained = [
        f"{module.path}: {comment}"
        for module in modules
        for comment in _comments(module)
        if IGNORE.search(comment) and not EXPLAINED.search(comment)
    ]
    assert unexplained == []


def test_no_module_is_named_for_nothing(modules: list[Module]) -> None:
    names = {module.path: set(module.path.removesuffix(".py").split("/")) for module in modules}
    assert [path for path, parts in names.items() if parts & ROOMS_WITHOUT_A_SUBJECT] == []


def _comments(module: Module) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]

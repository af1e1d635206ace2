"""The environment is read in settings.py and nowhere else."""

import ast

import pytest

from tests.architecture.tree import Module

# A forked child is given its own folder before it runs anything; native code finds that by the variable. An
# attempt that the resident process forks gets its own variables in place of that process's.
WRITTEN = {"exporter/distributed/fork_server.py: os.putenv", "worker/resident/server.py: os.environ"}
ENVIRONMENT = {"environ", "environb", "getenv", "putenv", "unsetenv"}


def test_only_settings_read_the_environment(modules: list[Module]) -> None:
    readers = {
        f"{module.path}: {ast.unparse(node)}"
        for module in modules
        if module.is_shipped and not module.path.endswith("/settings.py")
        for node in ast.walk(module.tree)
        if _reads_environment(node)
    }
    assert readers == WRITTEN


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['A']", "from os import environ", "import os as o\no.getenv('A')"]
)
def test_a_reader_is_recognised(source: str) -> None:
    assert any(_reads_environment(node) for node in ast.walk(ast.parse(source)))


def _reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ENVIRONMENT for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT

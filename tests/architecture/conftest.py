"""The tree as the tests of this folder see it: tracked files, parsed once."""

import ast
import subprocess

import pytest

from tests.architecture.tree import ROOT, Module


@pytest.fixture(scope="session")
def tracked_files() -> list[str]:
    """Files that git knows or would add; what is generated or installed is ignored there."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(name for name in names.split("\0") if name and (ROOT / name).is_file())


@pytest.fixture(scope="session")
def modules(tracked_files: list[str]) -> list[Module]:
    texts = {name: (ROOT / name).read_text() for name in tracked_files if name.endswith(".py")}
    return [Module(name, text, ast.parse(text)) for name, text in texts.items()]

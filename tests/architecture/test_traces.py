"""Tracked files name neither the machine they were written on nor the registry packages came from."""

import re

from tests.architecture.tree import ROOT

# The brackets keep this file from matching itself.
FORBIDDEN = re.compile(
    r"/[r]oot/|/[h]ome/\w|/[w]ork/|/[U]sers/\w|(?<!emit-)[i]ndex-url|[p]ypi\.|[p]ythonhosted"
)
BINARY = (".png", ".parquet", ".safetensors", ".distcp", ".metadata")


def test_tracked_files_name_no_machine(tracked_files: list[str]) -> None:
    found = [
        f"{name}:{number}: {line.strip()[:80]}"
        for name in tracked_files
        if not name.endswith(BINARY) and not name.startswith("tests/fixtures/")
        for number, line in enumerate((ROOT / name).read_text().splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]
    assert found == []


def test_requirements_are_exact_and_name_no_registry() -> None:
    for lock in sorted((ROOT / "requirements").glob("*.txt")):
        pins = [line for line in lock.read_text().splitlines() if line and not line.startswith("#")]
        loose = [pin for pin in pins if not re.match(r"^[a-z0-9][a-z0-9._-]*==[0-9][\w.]*(\s|$)", pin)]
        assert (lock.name, loose) == (lock.name, [])

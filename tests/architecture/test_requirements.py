"""A program's pins suffice to import it, agree with the others', and name torch only where it is needed."""

import re
import subprocess
import sys

import pytest

from tests.architecture.tree import ROOT

OURS = ("slipway", "slipway-service")
PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)

# Run with distributions as arguments: hides every other one, then imports what standard input names.
IMPORT_WITH_ONLY = """
import importlib, importlib.metadata, re, sys

allowed = set(sys.argv[1:])
owners = importlib.metadata.packages_distributions()

class Allowed:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        names = {re.sub("[-_.]+", "-", owner).lower() for owner in owners.get(name, ())}
        if names and not names & allowed:
            return None  # as where it is not installed; some ask before they import
        return self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Allowed(finder) for finder in sys.meta_path]
for module in sys.stdin.read().split():
    importlib.import_module(module)
"""


def _pins(*names: str) -> dict[str, str]:
    return {
        pin: version
        for name in names
        for pin, version in PIN.findall((ROOT / "requirements" / f"{name}.txt").read_text())
    }


@pytest.mark.parametrize(
    ("requirements", "modules"),
    [
        (["service"], "service.app slipway.client cli.main"),
        (["worker"], "worker.app worker.tasks slipway.client cli.main"),
        (["exporter", "torch", "cpu"], "exporter.pipeline.export cli.main"),
    ],
)
def test_a_program_imports_with_its_pins_alone(requirements: list[str], modules: str) -> None:
    command = [sys.executable, "-c", IMPORT_WITH_ONLY, *OURS, *_pins(*requirements)]
    imported = subprocess.run(command, input=modules, capture_output=True, text=True, check=False, cwd=ROOT)
    assert imported.returncode == 0, imported.stderr.splitlines()[-1]


@pytest.mark.parametrize("program", ["service", "worker", "exporter", "torch"])
def test_a_program_runs_on_what_was_tested(program: str) -> None:
    tested = _pins("dev", "torch")
    assert {name: version for name, version in _pins(program).items() if tested.get(name) != version} == {}


@pytest.mark.parametrize("program", ["service", "worker"])
def test_no_torch_where_none_is_needed(program: str) -> None:
    torch_stack = (_pins("torch").keys() - _pins("dev").keys()) | _pins("cpu", "cuda").keys()
    assert _pins(program).keys() & torch_stack == set()


def test_the_compiler_of_protos_is_the_pinned_one() -> None:
    """Generated code asks for a protobuf runtime no older than its compiler's."""
    wanted = f'"grpcio-tools=={_pins("dev")["grpcio-tools"]}"'
    assert (ROOT / "pyproject.toml").read_text().count(wanted) == 2

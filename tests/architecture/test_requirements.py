"""Each program's pins agree with the others', and the front end's name no torch."""

import re

import pytest

from tests.architecture.tree import ROOT

PIN = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", re.MULTILINE)


def _pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / f"{name}.txt").read_text()))


@pytest.mark.parametrize("program", ["service", "worker", "exporter", "torch"])
def test_a_program_runs_on_what_was_tested(program: str) -> None:
    tested = _pins("dev") | _pins("torch")
    assert {name: version for name, version in _pins(program).items() if tested.get(name) != version} == {}


@pytest.mark.parametrize("program", ["service", "worker"])
def test_no_torch_where_none_is_needed(program: str) -> None:
    torch_stack = _pins("torch").keys() - _pins("dev").keys() | _pins("cpu").keys() | _pins("cuda").keys()
    assert _pins(program).keys() & torch_stack == set()


def test_the_compiler_of_protos_is_the_pinned_one() -> None:
    """Generated code asks for a protobuf runtime no older than its compiler."""
    wanted = f'"grpcio-tools=={_pins("dev")["grpcio-tools"]}"'
    assert (ROOT / "pyproject.toml").read_text().count(wanted) == 2

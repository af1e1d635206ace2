"""docs/commands.md: a command for each call of the API, and the exit codes that programs see."""

import json
import re

import pytest

from cli.main import INTERRUPTED, INVALID_COMMAND, main
from service.client.watch import EXIT_CODES, NOT_BLESSED
from tests.architecture.tree import ROOT

PAGE = (ROOT / "docs" / "commands.md").read_text()
ROW = re.compile(r"^\| `([A-Z]+ /[^`]*)` \| (?:`slipway ([a-z-]+(?: [a-z]+)?)`|none: )", re.MULTILINE)
COMMANDS = {call: command for call, command in ROW.findall(PAGE) if command}


def test_it_has_a_row_for_each_call_of_the_api() -> None:
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text())["paths"]
    calls = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    assert {call for call, _ in ROW.findall(PAGE)} == calls
    assert calls - COMMANDS.keys() == {"GET /healthz", "GET /metrics", "POST /webhooks/training"}


@pytest.mark.parametrize("command", sorted(set(COMMANDS.values())))
def test_its_commands_have_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    assert f"usage: slipway {command}" in capsys.readouterr().out


def test_it_lists_the_exit_codes() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
    assert listed == {*EXIT_CODES.values(), NOT_BLESSED, INVALID_COMMAND, INTERRUPTED}

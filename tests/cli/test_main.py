"""The command line: examples, exit codes, and one readable line per error."""

import json

import pytest

from cli.main import main

COMMANDS = ["plan", "export", "predict", "inspect", "submit", "watch", "list", "cancel", "retry"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"example: slipway {command}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["inspect"], ["predict", "--tower", "x"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2


def test_an_error_is_one_line_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "no/such/artifact"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("slipway: error [invalid_artifact]: no/such/artifact is no artifact")
    assert said.count("\n") == 1


def test_an_error_can_be_had_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "no/such/artifact", "--json"]) == 1
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "invalid_artifact"


def test_a_missing_config_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["--config", "/no/pipeline.config", "--checkpoint", "c", "--output", "o"]
    assert main(["export", *paths]) == 1
    assert "error [source_not_found]: " in capsys.readouterr().err


def test_a_service_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--url", "http://127.0.0.1:9"]) == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err
